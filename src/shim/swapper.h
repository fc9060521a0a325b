// Swapper: says which chunks come onto the card and which leave it, and has them moved (mover.h).
//
// Threading: one lock, mutex(), which the caller takes; the agent holds it while it moves chunks,
// so a thread of the program that must not wait uses TryLock.
// Invariants
// 1. A chunk that is not resident has its bytes in its host copy, or never had any.
// 2. A host copy of a resident chunk is equal to it, and kept until the gate opens (Expose).
// 3. An operation that fails leaves every chunk as it was or as it was meant to become.
#pragma once

#include <functional>
#include <utility>

#include "src/base/bytes.h"
#include "src/base/mutex.h"
#include "src/cuda/real_driver.h"
#include "src/shim/device_memory.h"
#include "src/shim/mover.h"

namespace tandem::shim {

class Swapper {
 public:
  Swapper(const cuda::RealDriver* real, CUdevice device, DeviceMemory* memory, Bytes chunk)
      : memory_(memory), mover_(real, device, memory, chunk) {}
  Swapper(const Swapper&) = delete;
  Swapper& operator=(const Swapper&) = delete;

  Mutex& mutex() TANDEM_ATTRIBUTE(lock_returned(mutex_)) { return mutex_; }

  // Work runs in `context` from now on. Before a context is destroyed the swapper must leave it;
  // null: it has none and can only unmap.
  void UseContext(CUcontext context) REQUIRES_LOCK(mutex_) { mover_.UseContext(context); }
  CUcontext context() const REQUIRES_LOCK(mutex_) { return mover_.context(); }

  // Backs a new run at once. The gate is open: its bytes may change from now on.
  // CUDA_ERROR_NOT_READY: RestoreSome has begun with it, and goes on.
  CUresult BackNew(Run* run) REQUIRES_LOCK(mutex_);

  // Takes chunks off the card until at most `target` is there. `moved` is told after every chunk
  // how many bytes of it were copied.
  CUresult Evict(Bytes target, const std::function<void(Bytes copied)>& moved)
      REQUIRES_LOCK(mutex_);
  // Begins to bring in some of what is missing, up to `credit` in all, and takes note of what has
  // arrived: *copied grows by that. CUDA_ERROR_NOT_READY: there is nothing to do but to wait for
  // what is under way, or for more credit.
  CUresult RestoreSome(Bytes credit, Bytes* copied) REQUIRES_LOCK(mutex_);
  // The gate opens: from now on chunks may differ from their host copies.
  void Expose() REQUIRES_LOCK(mutex_);
  // The context is broken: what it holds is not copied any more. Work runs in `other` if it ran
  // there.
  void Lose(CUcontext context, CUcontext other) REQUIRES_LOCK(mutex_);
  // The last context is gone, and was broken: what the program has mapped outlives it, but where
  // only the card holds it nobody could copy it any more. It is lost, and so can leave the card.
  // REQUIRES: context() is null.
  void LoseUncopied() REQUIRES_LOCK(mutex_);
  // Puts a run into one piece of memory, and pins it. CUDA_ERROR_NOT_READY: it is not all on the
  // card. REQUIRES: no work is under way, nor can any come.
  CUresult Gather(Run* run, CUmemGenericAllocationHandle piece) REQUIRES_LOCK(mutex_);
  // Hears of each run that was shared, once it is unmapped.
  void OnSharedGone(std::function<void(const Run&)> gone) REQUIRES_LOCK(mutex_) {
    shared_gone_ = std::move(gone);
  }
  // Lets another device of the program's use all runs, those to come too, or no longer.
  CUresult SetPeer(CUdevice peer, bool reaches) REQUIRES_LOCK(mutex_) {
    return mover_.SetPeer(peer, reaches);
  }
  // Gives back what dead runs still hold, but for those with chunks that are arriving.
  void Reap() REQUIRES_LOCK(mutex_);
  // One small step of what the host memory needs while nobody waits for it, so that there be room
  // for `ahead`. Whether there is more.
  bool Tend(Bytes ahead) REQUIRES_LOCK(mutex_) { return mover_.Tend(ahead); }
  // Whether Tend has host memory to zero.
  bool HasReturned() const REQUIRES_LOCK(mutex_) { return mover_.HasReturned(); }
  // Gives host memory back that nothing has used for a while, beyond `ahead`.
  void Trim(Bytes ahead) REQUIRES_LOCK(mutex_) { mover_.Trim(ahead); }

 private:
  using Place = DeviceMemory::Place;

  CUresult Clear(Run* run) REQUIRES_LOCK(mutex_);

  DeviceMemory* const memory_;
  Mutex mutex_;
  Mover mover_ GUARDED_BY(mutex_);
  std::function<void(const Run&)> shared_gone_ GUARDED_BY(mutex_);
  bool reap_failed_ GUARDED_BY(mutex_) = false;  // and was told
};

}  // namespace tandem::shim
