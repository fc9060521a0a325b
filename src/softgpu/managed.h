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
#include "src/base/ranges.h"
#include "src/cuda/driver_types.h"

namespace tandem::soft {

struct ManagedAdvice {
  bool read_mostly = false;
  CUdevice preferred = CU_DEVICE_INVALID;
  CUdevice prefetched = CU_DEVICE_INVALID;
  std::set<CUdevice> accessed_by;
  bool operator==(const ManagedAdvice&) const = default;
};

class ManagedMemory {
 public:
  void Add(uint64_t number);
  bool Has(uint64_t number);
  // Ranges are counted from where the block begins; advice is about the pages that they touch.
  // What holds for all of the range; no advice where there is no such block.
  ManagedAdvice AdviceFor(uint64_t number, Range range);
  void Advise(uint64_t number, Range range, CUmem_advise advice, CUdevice device);
  void NotePrefetch(uint64_t number, Range range, CUdevice device);

 private:
  // By where a part of a block begins, what was said of it. There is always one at zero.
  using Parts = std::map<uint64_t, ManagedAdvice>;
  static Parts::iterator SplitAt(Parts& parts, uint64_t offset);
  template <typename Change>
  void ChangeParts(uint64_t number, Range range, Change change);

  Mutex mutex_;
  // By the block's number, which is never used twice; a few bytes stay when the block goes.
  std::map<uint64_t, Parts> blocks_ GUARDED_BY(mutex_);
};

}  // namespace tandem::soft
