// EventPool: events to find out with when work is done, or how long it took, used again and again.
//
// Threading: none of its own; the caller holds the lock under which no stream or context that it
// names is destroyed.
#pragma once

#include <optional>
#include <vector>

#include "src/base/time.h"
#include "src/cuda/real_driver.h"

namespace tandem::shim {

// An event behind some work of a context.
struct Marker {
  CUevent event = nullptr;
  CUcontext context = nullptr;
};

class EventPool {
 public:
  enum class Kind { kUntimed = CU_EVENT_DISABLE_TIMING, kTimed = CU_EVENT_DEFAULT };
  explicit EventPool(const cuda::RealDriver* real, Kind kind = Kind::kUntimed)
      : real_(real), kind_(kind) {}

  // Puts an event behind all that was submitted to the stream so far.
  // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED or …_IMPLICIT: the stream, or for a default stream one
  // that it waits for, is being captured. What was submitted before may still run, and nothing can
  // be put behind it until the capture ends.
  CUresult Record(CUcontext context, CUstream stream, Marker* marker);
  // CUDA_SUCCESS when it is done, CUDA_ERROR_NOT_READY while it is not, else a sticky error. Breaks
  // no capture.
  CUresult Query(const Marker& marker) const;
  // The device's time between two that are done. REQUIRES: the pool's are timed.
  std::optional<Duration> Between(const Marker& earlier, const Marker& later) const;
  void Return(const Marker& marker);
  // The context takes its events with it.
  void RemoveContext(CUcontext context);

 private:
  const cuda::RealDriver* const real_;
  const Kind kind_;
  std::vector<Marker> spare_;
};

}  // namespace tandem::shim
