// DriverPools: the pools whose memory is the driver's own, since other processes or devices may use
// it, or it is managed. It cannot be swapped; what each pool takes from the card is counted.
//
// Threading: any.
// Invariant: a pool that was destroyed counts for what the program still has of it.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "src/base/mutex.h"
#include "src/cuda/real_driver.h"
#include "src/shim/memory/kept_memory.h"

namespace tandem::shim {

class DriverPools {
 public:
  DriverPools(const cuda::RealDriver* real, FixedMemory* fixed) : real_(real), fixed_(fixed) {}

  // From now on what the pool hands out is the driver's.
  void Add(CUmemoryPool handle) EXCLUDES_LOCK(mutex_);
  bool Has(CUmemoryPool handle) const EXCLUDES_LOCK(mutex_) { return Find(handle) != nullptr; }

  // Before the driver allocates: waits for room. False: there is none.
  bool MakeRoom(CUmemoryPool handle, Bytes bytes) EXCLUDES_LOCK(mutex_);
  // After it has; `pointer` null: it has not.
  void Allocated(CUmemoryPool handle, Bytes bytes, CUdeviceptr pointer) EXCLUDES_LOCK(mutex_);
  // The program has freed what may be such a block; it goes, if at all, when work is done.
  void Freed(CUdeviceptr pointer) EXCLUDES_LOCK(mutex_);
  // Something may have gone from the card.
  void Recount() EXCLUDES_LOCK(mutex_);
  // The driver gives back what pools only keep. Whether there was any.
  bool Trim() EXCLUDES_LOCK(mutex_);

  // Before the driver destroys it, whose handle may then be another's; and if it will not.
  void Destroying(CUmemoryPool handle) EXCLUDES_LOCK(mutex_);
  void NotDestroyed(CUmemoryPool handle) EXCLUDES_LOCK(mutex_);

 private:
  struct Pool {
    CUmemoryPool handle = nullptr;
    std::atomic<bool> destroyed{false};
    std::atomic<uint64_t> live{0};  // bytes
    std::unique_ptr<KeptMemory> memory;
  };
  // Shared with the calls that are under way.
  using PoolPointer = std::shared_ptr<Pool>;
  struct Live {
    PoolPointer pool;
    uint64_t bytes = 0;
  };

  std::vector<PoolPointer> All() EXCLUDES_LOCK(mutex_);
  PoolPointer Find(CUmemoryPool handle) const EXCLUDES_LOCK(mutex_);
  Bytes Attribute(const Pool& pool, CUmemPool_attribute attribute) const;

  const cuda::RealDriver* const real_;
  FixedMemory* const fixed_;
  mutable Mutex mutex_;
  std::map<CUmemoryPool, PoolPointer> pools_ GUARDED_BY(mutex_);
  std::map<CUdeviceptr, Live> live_ GUARDED_BY(mutex_);
  std::vector<PoolPointer> destroyed_ GUARDED_BY(mutex_);  // with blocks left
  std::atomic<size_t> count_{0};                           // pools there have been
};

}  // namespace tandem::shim
