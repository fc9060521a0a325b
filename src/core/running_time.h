// RunningTime: for how long something was so, in all. Pure. Threading: none.
#pragma once

#include <optional>

#include "src/base/time.h"

namespace tandem::core {

class RunningTime {
 public:
  // From `now` on it is so, or is not. Costs the same however often the total is read.
  void Set(bool on, Instant now) {
    if (on == since_.has_value()) return;
    total_ = Until(now);
    since_ = on ? std::optional(now) : std::nullopt;
  }
  Duration Until(Instant now) const {
    return since_.has_value() ? total_ + (now - *since_) : total_;
  }

 private:
  Duration total_;
  std::optional<Instant> since_;
};

}  // namespace tandem::core
