// Managed memory: blocks of cuMemAllocManaged. They are blocks like any other, for all device
// memory lies at addresses that the host may use as they are; a ManagedBlock keeps only the
// program's advice about one. So there is managed memory only as far as VRAM goes.
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

class ManagedBlock {
 public:
  // Ranges are counted from where the block begins, which is where a page of the host's does;
  // advice is about the pages that they touch.
  // What holds for all of the range.
  ManagedAdvice AdviceFor(Range range);
  void Advise(Range range, CUmem_advise advice, CUdevice device);
  void NotePrefetch(Range range, CUdevice device);

 private:
  // By where a part of the block begins, what was said of it. There is always one at zero, and
  // neighbours differ.
  using Parts = std::map<uint64_t, ManagedAdvice>;
  Parts::iterator SplitAt(uint64_t offset) REQUIRES_LOCK(mutex_);
  template <typename Change>
  void ChangeParts(Range range, Change change);

  Mutex mutex_;
  Parts parts_ GUARDED_BY(mutex_) = {{0, {}}};
};

}  // namespace tandem::soft
