// Swapper: brings chunks onto the card and off it, by the real driver's calls.
//
// Threading: one lock, mutex(), which the caller takes; the agent holds it while it moves chunks,
// so a thread of the program that must not wait uses TryLock. Driver work runs on two streams of
// our own, one per direction, in one of the program's contexts.
// Invariants
// 1. A chunk that is not resident has its bytes in its host copy, or never had any.
// 2. A host copy of a resident chunk is equal to it, and kept until the gate opens (Expose).
// 3. An operation that fails leaves every chunk as it was or as it was meant to become.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/mutex.h"
#include "src/cuda/real_driver.h"
#include "src/shim/device_memory.h"
#include "src/shim/host_arena.h"

namespace tandem::shim {

class Swapper {
 public:
  Swapper(const cuda::RealDriver* real, CUdevice device, DeviceMemory* memory, Bytes chunk);
  Swapper(const Swapper&) = delete;
  Swapper& operator=(const Swapper&) = delete;

  Mutex& mutex() TANDEM_ATTRIBUTE(lock_returned(mutex_)) { return mutex_; }

  // Work runs in `context` from now on. Before a context is destroyed the swapper must leave it;
  // null: it has none and can only unmap.
  void UseContext(CUcontext context) REQUIRES_LOCK(mutex_);
  CUcontext context() const REQUIRES_LOCK(mutex_) { return context_; }

  // Backs a new run at once. The gate is open: its bytes may change from now on.
  // CUDA_ERROR_NOT_READY: RestoreSome has begun with it, and goes on.
  CUresult BackNew(Run* run) REQUIRES_LOCK(mutex_);

  // Takes chunks off the card until at most `target` is there. `moved` is told after every chunk
  // how many bytes of it were copied.
  CUresult Evict(Bytes target, const std::function<void(Bytes copied)>& moved)
      REQUIRES_LOCK(mutex_);
  // Brings in some of what is missing, up to `credit` in all. *copied grows by what had a host
  // copy.
  CUresult RestoreSome(Bytes credit, Bytes* copied) REQUIRES_LOCK(mutex_);
  // The gate opens: from now on chunks may differ from their host copies.
  void Expose() REQUIRES_LOCK(mutex_);
  // The context is broken: what it holds is not copied any more. Work runs in `other` if it ran
  // there.
  void Lose(CUcontext context, CUcontext other) REQUIRES_LOCK(mutex_);
  // Lets another device of the program's use all runs, those to come too, or no longer.
  CUresult SetPeer(CUdevice peer, bool reaches) REQUIRES_LOCK(mutex_);
  // Gives back what dead runs still hold.
  void Reap() REQUIRES_LOCK(mutex_);
  void Trim() REQUIRES_LOCK(mutex_);

 private:
  using Place = DeviceMemory::Place;
  struct Leaving {
    Place place;
    std::byte* host;
    CUevent event;
  };
  class InContext;

  CUresult PrepareStreams() REQUIRES_LOCK(mutex_);
  CUevent TakeEvent() REQUIRES_LOCK(mutex_);
  CUresult Back(const Place* places, size_t count) REQUIRES_LOCK(mutex_);
  CUresult Unback(const Place& place) REQUIRES_LOCK(mutex_);
  CUresult StartLeaving(const Place& place, std::deque<Leaving>* leaving) REQUIRES_LOCK(mutex_);
  CUresult FinishLeaving(std::deque<Leaving>* leaving,
                         const std::function<void(Bytes copied)>& moved) REQUIRES_LOCK(mutex_);
  void DropHostCopy(Chunk* chunk) REQUIRES_LOCK(mutex_);

  const cuda::RealDriver* const real_;
  const CUdevice device_;
  DeviceMemory* const memory_;

  Mutex mutex_;
  std::vector<CUmemAccessDesc> access_ GUARDED_BY(mutex_);  // this device's, and its peers'
  HostArena arena_ GUARDED_BY(mutex_);
  CUcontext context_ GUARDED_BY(mutex_) = nullptr;
  CUstream out_stream_ GUARDED_BY(mutex_) = nullptr;
  CUstream in_stream_ GUARDED_BY(mutex_) = nullptr;
  std::vector<CUevent> events_ GUARDED_BY(mutex_);
  bool reap_failed_ = false;  // and was told
};

}  // namespace tandem::shim
