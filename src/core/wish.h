// Wish: what a session waits for.
#pragma once

#include <cstdint>

#include "src/core/types.h"

namespace tandem::core {

// Of wishes, to be served together before others, or after them.
using GroupId = uint64_t;
inline constexpr GroupId kNoGroup = 0;

// A session waits for at most one of each kind.
struct Wish {
  enum class Kind {
    kLease,    // to run, with all it needs on the card
    kGrowth,   // it runs, and needs more on the card than it has
    kContext,  // room for one more context
    kFixed,    // room for other memory that cannot be swapped
  };
  static constexpr Kind kKinds[] = {Kind::kLease, Kind::kGrowth, Kind::kContext, Kind::kFixed};
  // Whether it is for what stays on the card as long as it exists.
  bool lasting() const { return kind == Kind::kContext || kind == Kind::kFixed; }

  SessionId id;
  Kind kind = Kind::kLease;
  Instant since = {};
  uint64_t ticket = 0;  // order of arrival, never the same for two wishes
  // As the policy has it: the lowest of its group is served first, of equals who came first.
  int64_t rank = 0;
  GroupId group = kNoGroup;
};

}  // namespace tandem::core
