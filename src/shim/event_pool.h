// EventPool: events to find out with when work is done, used again and again.
//
// Threading: none of its own; the caller holds the lock under which no stream or context that it
// names is destroyed.
#pragma once

#include <vector>

#include "src/cuda/real_driver.h"

namespace tandem::shim {

// An event behind some work of a context.
struct Marker {
  CUevent event = nullptr;
  CUcontext context = nullptr;
};

class EventPool {
 public:
  explicit EventPool(const cuda::RealDriver* real) : real_(real) {}

  // Puts an event behind all that was submitted to the stream so far.
  // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED or …_IMPLICIT: the stream, or for a default stream one
  // that it waits for, is being captured. What was submitted before may still run, and nothing can
  // be put behind it until the capture ends.
  CUresult Record(CUcontext context, CUstream stream, Marker* marker);
  // CUDA_SUCCESS when it is done, CUDA_ERROR_NOT_READY while it is not, else a sticky error. Breaks
  // no capture.
  CUresult Query(const Marker& marker) const;
  void Return(const Marker& marker);
  // The context takes its events with it.
  void RemoveContext(CUcontext context);

 private:
  const cuda::RealDriver* const real_;
  std::vector<Marker> spare_;
};

}  // namespace tandem::shim
