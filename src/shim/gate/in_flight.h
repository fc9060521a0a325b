// InFlight: bounds the submitted work of one stream that is not done yet to about a window of time,
// so that a lease that is taken away drains as quickly.
//
// Only submissions can be held back, so they are what is counted: `limit` may be under way. How
// many that may be is found out in time: an event stands behind every few submissions, and the
// device's time between two of them is what those in between took, at most. The limit moves towards
// what would take the window (at most by half or to the double at once). The floor is one
// submission, however long it runs.
//
// Threading: none of its own; the caller holds the EventPool's lock.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "src/base/time.h"
#include "src/shim/driver/event_pool.h"

namespace tandem::shim {

class InFlight {
 public:
  explicit InFlight(CUcontext context) : context_(context) {}

  // Whether one more may be submitted to `stream` now, which counts it; else ask again soon. The
  // events are timed.
  bool Admit(EventPool* events, CUstream stream, Duration window);
  // Counts one that is submitted whatever Admit says.
  void Add() { ++unmarked_; }
  // All of it is done; the learnt limit stays.
  void ReturnEvents(EventPool* events);

  uint64_t limit() const { return limit_; }

 private:
  struct Mark {
    Marker marker;
    uint64_t submissions;  // since the mark before
  };

  void Retire(EventPool* events, Duration window);
  void Learn(uint64_t submissions, Duration took, Duration window);

  const CUcontext context_;
  std::deque<Mark> marks_;      // at most limit_ of them: each stands for a submission or more
  uint64_t marked_ = 0;         // submissions that marks_ stand for
  uint64_t unmarked_ = 0;       // submissions behind the last mark
  std::optional<Marker> last_;  // of the marks that are done
  uint64_t limit_ = 8;
};

}  // namespace tandem::shim
