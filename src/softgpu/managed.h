// Managed memory: blocks of cuMemAllocManaged. They are blocks like any other, for all device
// memory lies at addresses that the host may use as they are; what is kept here is what the program
// said about them. So there is managed memory only as far as VRAM goes.
//
// Threading: any thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "src/base/mutex.h"
#include "src/cuda/driver_types.h"

namespace tandem::soft {

struct ManagedAdvice {
  bool read_mostly = false;
  CUdevice preferred = CU_DEVICE_INVALID;
  CUdevice prefetched = CU_DEVICE_INVALID;
  std::set<CUdevice> accessed_by;
};

class ManagedMemory {
 public:
  void Add(uint64_t number);
  bool Has(uint64_t number);
  // No advice where there is no such block.
  ManagedAdvice AdviceFor(uint64_t number);
  void Advise(uint64_t number, CUmem_advise advice, CUdevice device);
  void NotePrefetch(uint64_t number, CUdevice device);

 private:
  Mutex mutex_;
  // By the block's number, which is never used twice; a few bytes stay when the block goes.
  std::map<uint64_t, ManagedAdvice> blocks_ GUARDED_BY(mutex_);
};

}  // namespace tandem::soft
