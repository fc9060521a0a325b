#include "src/shim/in_flight.h"

#include <algorithm>

namespace tandem::shim {
namespace {

constexpr uint64_t kMostSubmissions = 1024;  // what drivers queue before they block by themselves
constexpr uint64_t kMarksPerLimit = 4;

}  // namespace

bool InFlight::Admit(EventPool* events, CUstream stream, Duration window, Instant now) {
  Retire(events, window, now);
  bool full = marked_ + unmarked_ >= limit_;
  const uint64_t stride = std::max<uint64_t>(limit_ / kMarksPerLimit, 1);
  if (unmarked_ >= stride || (full && unmarked_ > 0 && marks_.empty())) {
    Marker marker;
    // Without an event nothing is known, so nothing is held back either: the call that follows says
    // what is wrong.
    if (events->Record(context_, stream, &marker) != CUDA_SUCCESS) return true;
    marks_.push_back({marker, unmarked_, now});
    marked_ += unmarked_;
    unmarked_ = 0;
    Retire(events, window, now);  // all of it may be done already
    full = marked_ >= limit_;
  }
  if (full) {
    waited_ = true;
    return false;
  }
  ++unmarked_;
  return true;
}

void InFlight::Retire(EventPool* events, Duration window, Instant now) {
  while (!marks_.empty() && events->Query(marks_.front().marker) != CUDA_ERROR_NOT_READY) {
    const Mark first = marks_.front();
    marks_.pop_front();
    marked_ -= first.submissions;
    events->Return(first.marker);
    if (!waited_) continue;
    waited_ = false;
    const auto took = std::max<int64_t>((now - first.recorded_at).ns, 1);
    const auto fits = static_cast<uint64_t>(
        static_cast<double>(limit_) * static_cast<double>(window.ns) / static_cast<double>(took));
    limit_ =
        std::clamp(fits, std::max<uint64_t>(limit_ / 2, 1), std::min(limit_ * 2, kMostSubmissions));
  }
}

void InFlight::ReturnEvents(EventPool* events) {
  for (const Mark& mark : marks_) events->Return(mark.marker);
  marks_.clear();
  marked_ = unmarked_ = 0;
}

}  // namespace tandem::shim
