// Vmm: virtual memory management, the driver calls that reserve addresses, create physical memory
// and map the one to the other. Belongs to the process, not to a context. Physical memory is of a
// device, or of the host, which devices may use where they are given access as anywhere else.
//
// Threading: the owner serialises all calls.
//
// Invariants:
// 1. A mapping lies in one reservation and covers one whole handle, from its start.
// 2. Physical memory lives until its handle is released as often as it was created, imported and
//    retained, and its last mapping is gone.
// 3. A process is charged for the device memory that it created, not for what it imports. Memory
//    that its creator lets go of while others still map it is not counted.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "softgpu/card/address_space.h"
#include "softgpu/card/physical_store.h"
#include "softgpu/card/shareable_memory.h"
#include "src/cuda/driver_types.h"

namespace tandem::soft {

class Vmm {
 public:
  using Handle = CUmemGenericAllocationHandle;

  // REQUIRES: outlives this.
  explicit Vmm(AddressSpace* space) : space_(space) {}

  CUresult Reserve(uint64_t bytes, uint64_t alignment, uint64_t wanted, uint64_t* address);
  CUresult FreeReservation(uint64_t address, uint64_t bytes);
  // `device` is what memory that can be exported says of where it lies.
  CUresult Create(PhysicalStore* store, const CUuuid& device, uint64_t bytes,
                  const CUmemAllocationProp& properties, Handle* handle);
  // Memory of the host.
  CUresult CreateOnHost(uint64_t bytes, const CUmemAllocationProp& properties, Handle* handle);
  // Memory that another process exported, or this one.
  Handle Adopt(std::shared_ptr<ShareableMemory> memory, const CUmemAllocationProp& properties);
  CUresult Export(Handle handle, int* fd);
  // The handle of what is mapped at `address`, to be released once more.
  CUresult Retain(uint64_t address, Handle* handle);
  CUresult Release(Handle handle);
  CUresult Map(uint64_t address, uint64_t bytes, Handle handle);
  CUresult Unmap(uint64_t address, uint64_t bytes);
  // What devices and the host may do there; copies may what any of the devices may.
  static constexpr int kHost = -1;  // in place of a device
  struct Grant {
    int device = 0;
    Access access = Access::kNone;
  };
  CUresult SetAccess(uint64_t address, uint64_t bytes, const std::vector<Grant>& grants);

  // Whether there is memory of a device that another process has or may have.
  bool shares() const;

  const CUmemAllocationProp* PropertiesOf(Handle handle) const;
  // The mapping around `address`.
  struct Found {
    Range range;
    Access access = Access::kNone;  // of the device or host that it is of
    Access copies = Access::kNone;  // the most that any device may
    int device = 0;                 // or kHost
    Handle handle = 0;
    CUmemAllocationHandleType handle_types = CU_MEM_HANDLE_TYPE_NONE;
    std::map<int, Access> users;  // who may do anything there
  };
  std::optional<Found> Find(uint64_t address) const;

 private:
  struct Physical {
    PhysicalStore* store = nullptr;  // null for memory that is not charged
    uint64_t size = 0;
    std::vector<Range> pieces;                // in the store, or
    std::shared_ptr<ShareableMemory> shared;  // memory of its own
    CUmemAllocationProp properties = {};
    int mappings = 0;
    int references = 1;
  };
  struct Mapping {
    uint64_t size = 0;
    Handle handle = 0;
    std::map<int, Access> users;  // none of them kNone
  };
  using Mappings = std::map<uint64_t, Mapping>;  // by address

  // The mappings that cover the range exactly and without holes; false if there are none such.
  bool Covers(uint64_t address, uint64_t bytes, Mappings::iterator* first, Mappings::iterator* end);
  bool InOneReservation(uint64_t address, uint64_t bytes) const;
  // Of what is about to be unmapped, for the next mapping.
  void KeepTables(uint64_t address, const Mapping& mapping);
  void DropIfUnused(Handle handle);
  int DeviceOf(const Mapping& mapping) const;

  AddressSpace* const space_;
  std::map<uint64_t, uint64_t> reservations_;  // address → size
  std::unordered_map<Handle, Physical> physical_;
  Mappings mappings_;
};

}  // namespace tandem::soft
