#include "src/shim/gate/in_flight.h"

#include <algorithm>

namespace tandem::shim {
namespace {

constexpr uint64_t kMostSubmissions = 1024;  // what drivers queue before they block by themselves
constexpr uint64_t kMarksPerLimit = 4;
// A program may submit less than the limit and wait for it, again and again: that has to be seen,
// too.
constexpr uint64_t kMostUnmarked = 16;

}  // namespace

bool InFlight::Admit(EventPool* events, CUstream stream, Duration window) {
  Retire(events, window);
  bool full = marked_ + unmarked_ >= limit_;
  const uint64_t stride = std::clamp<uint64_t>(limit_ / kMarksPerLimit, 1, kMostUnmarked);
  if (unmarked_ >= stride || (full && unmarked_ > 0 && marks_.empty())) {
    Marker marker;
    // Without an event nothing is known, so nothing is held back either: the call that follows says
    // what is wrong.
    if (events->Record(context_, stream, &marker) != CUDA_SUCCESS) return true;
    marks_.push_back({marker, unmarked_});
    marked_ += unmarked_;
    unmarked_ = 0;
    Retire(events, window);  // all of it may be done already
    full = marked_ >= limit_;
  }
  if (full) return false;
  ++unmarked_;
  return true;
}

void InFlight::Retire(EventPool* events, Duration window) {
  while (!marks_.empty() && events->Query(marks_.front().marker) != CUDA_ERROR_NOT_READY) {
    const Mark first = marks_.front();
    marks_.pop_front();
    marked_ -= first.submissions;
    if (last_.has_value()) {
      const std::optional<Duration> took = events->Between(*last_, first.marker);
      if (took.has_value()) Learn(first.submissions, *took, window);
      events->Return(*last_);
    }
    last_ = first.marker;
  }
}

void InFlight::Learn(uint64_t submissions, Duration took, Duration window) {
  const auto fits =
      static_cast<uint64_t>(static_cast<double>(submissions) * static_cast<double>(window.ns) /
                            static_cast<double>(std::max<int64_t>(took.ns, 1)));
  limit_ =
      std::clamp(fits, std::max<uint64_t>(limit_ / 2, 1), std::min(limit_ * 2, kMostSubmissions));
}

void InFlight::ReturnEvents(EventPool* events) {
  for (const Mark& mark : marks_) events->Return(mark.marker);
  if (last_.has_value()) events->Return(*last_);
  last_.reset();
  marks_.clear();
  marked_ = unmarked_ = 0;
}

}  // namespace tandem::shim
