// DeviceVram: the VRAM of one device as this process sees it: its share of the joint VRAM, the
// store that has its pages, and the heap.
//
// Threading: the owner serialises the calls of the heap; each other part says its own. A
// DeviceVram lives until the process ends.
#pragma once

#include <memory>

#include "softgpu/card/address_space.h"
#include "softgpu/card/physical_store.h"
#include "softgpu/card/shared_device.h"
#include "softgpu/memory/heap.h"
#include "src/cuda/driver_types.h"

namespace tandem::soft {

class DeviceVram {
 public:
  // REQUIRES: `space` outlives this.
  DeviceVram(int ordinal, const CUuuid& uuid, std::unique_ptr<SharedDevice> shared,
             std::unique_ptr<PhysicalStore> store, AddressSpace* space)
      : ordinal_(ordinal),
        uuid_(uuid),
        shared_(std::move(shared)),
        store_(std::move(store)),
        space_(space),
        heap_(space, store_.get(), ordinal) {}
  DeviceVram(const DeviceVram&) = delete;
  DeviceVram& operator=(const DeviceVram&) = delete;

  int ordinal() const { return ordinal_; }
  const CUuuid& uuid() const { return uuid_; }
  SharedDevice& shared() { return *shared_; }
  PhysicalStore& store() { return *store_; }
  AddressSpace* space() { return space_; }
  Heap& heap() { return heap_; }

 private:
  const int ordinal_;
  const CUuuid uuid_;
  const std::unique_ptr<SharedDevice> shared_;
  const std::unique_ptr<PhysicalStore> store_;
  AddressSpace* const space_;
  Heap heap_;
};

}  // namespace tandem::soft
