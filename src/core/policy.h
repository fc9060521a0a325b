// Policy: who is next. Everything else about turns (for how long, who yields) is the same for all
// policies and lives in turns.h and arbiter.h.
//
// To add one: derive from Policy in a file of its own, and give MakePolicy its name.
#pragma once

#include <memory>
#include <string_view>

#include "src/core/types.h"

namespace tandem::core {

// What a session waits for. A session waits for at most one of each kind.
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
  Instant since;
  uint64_t ticket = 0;  // order of arrival, never the same for two wishes
  int64_t rank = 0;  // as the policy has it: the lowest is served first, of equals who came first
};

class Policy {
 public:
  virtual ~Policy() = default;
  // Asked when the wish comes. It stays what it is while the wish waits, so that the order of those
  // who wait is kept and not made anew for every event: what shall not starve gets a rank that
  // newcomers are behind sooner or later.
  virtual int64_t Rank(const Wish& wish) = 0;
};

// Null for a name it does not know. "fcfs": first come, first served.
std::unique_ptr<Policy> MakePolicy(std::string_view name);

}  // namespace tandem::core
