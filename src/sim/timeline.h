// Timeline: events in virtual time. Nothing here takes real time: a day of a node runs in seconds,
// and the same way each time.
//
// Threading: none.
// Invariant: events at the same instant happen in the order in which they were put there.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "src/base/time.h"

namespace tandem::sim {

class Timeline {
 public:
  using Call = std::function<void()>;

  Instant now() const { return now_; }
  // Not before now.
  void At(Instant when, Call call) {
    calls_.push({std::max(when, now_), ++order_, std::move(call)});
  }
  void After(Duration delay, Call call) { At(now_ + delay, std::move(call)); }
  // The next one. False if there is none.
  bool Step() {
    if (calls_.empty()) return false;
    const Entry next = calls_.top();
    calls_.pop();
    now_ = next.when;
    next.call();
    return true;
  }
  void RunUntil(Instant end) {
    while (!calls_.empty() && calls_.top().when <= end) Step();
    now_ = std::max(now_, end);
  }

 private:
  struct Entry {
    Instant when;
    uint64_t order;
    Call call;
    bool operator<(const Entry& other) const {  // the latest is the least
      return std::tie(other.when, other.order) < std::tie(when, order);
    }
  };

  Instant now_{1};
  uint64_t order_ = 0;
  std::priority_queue<Entry> calls_;
};

}  // namespace tandem::sim
