// FreeFence: finds out when retired memory (device_memory.h) may be used again: once all work is
// done that was submitted before it was freed. No thread waits for that: events are put behind the
// work, and polled from time to time.
//
// Threading: any thread. A step that another thread is about is left to that thread.
// Invariants
// 1. Memory retired after a fence was put waits for the next one.
// 2. Nothing is released on the strength of work that a capture hides.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

#include "src/base/mutex.h"
#include "src/shim/gate/gate.h"
#include "src/shim/gate/work_tracker.h"
#include "src/shim/swap/device_memory.h"

namespace tandem::shim {

class FreeFence {
 public:
  // `on_released` hears how much less memory is needed then.
  FreeFence(const cuda::RealDriver* real, CUdevice device, WorkTracker* tracker,
            DeviceMemory* memory, std::function<void(Bytes)> on_released)
      : real_(real),
        device_(device),
        tracker_(tracker),
        memory_(memory),
        on_released_(std::move(on_released)) {}

  // Releases what may be used again and puts a fence behind the rest; waits for nothing.
  // CUDA_ERROR_NOT_READY: some of it is not released yet; or an error of the work that it waits
  // for.
  CUresult Step() EXCLUDES_LOCK(mutex_) {
    return memory_->retired() == Bytes() ? CUDA_SUCCESS : Advance(false);
  }
  // The same, and looks whether all work is done, be anything retired or not.
  void Look() EXCLUDES_LOCK(mutex_) { Advance(true); }
  // All work is done and none can come: releases everything. REQUIRES: the gate is closed.
  void OnDrained() EXCLUDES_LOCK(mutex_);
  // Nothing has been submitted since all work was seen to end well.
  bool AllDone() const { return done_.load(std::memory_order_acquire) == Gate::Submits(); }

 private:
  static constexpr uint64_t kUnknown = ~uint64_t{0};

  CUresult Advance(bool look) EXCLUDES_LOCK(mutex_);
  CUresult Put() REQUIRES_LOCK(mutex_);

  const cuda::RealDriver* const real_;
  const CUdevice device_;
  WorkTracker* const tracker_;
  DeviceMemory* const memory_;
  const std::function<void(Bytes)> on_released_;
  Mutex mutex_;
  bool put_ GUARDED_BY(mutex_) = false;  // and has not come to pass
  // How many submissions the fence is behind, kUnknown where some were on their way in; and the
  // last one that came to pass.
  uint64_t behind_ GUARDED_BY(mutex_) = kUnknown;
  std::atomic<uint64_t> done_{kUnknown};
};

}  // namespace tandem::shim
