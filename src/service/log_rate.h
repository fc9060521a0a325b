// LogRate: how many lines of the log are about one user, so that no user's flood pushes others'
// lines out of it. A token bucket for each user: a burst, then a line a second.
//
// Threading: none. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "src/base/time.h"

namespace tandem::service {

class LogRate {
 public:
  static constexpr int kBurst = 60;  // lines
  static constexpr Duration kPause = Seconds(1);

  // How many lines about the user were left out since the last one; nothing: leave this one out,
  // too. Root's lines are never left out.
  std::optional<uint64_t> Take(unsigned uid, Instant now);

 private:
  struct User {
    Instant full_at;  // then it may have a burst again
    uint64_t left_out = 0;
  };
  std::map<unsigned, User> users_;
};

}  // namespace tandem::service
