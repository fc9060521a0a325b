// Policy: who is next. Everything else about turns (for how long, who yields) is the same for all
// policies and lives in turns.h and arbiter.h.
//
// To add one: derive from Policy in a file of its own, and give MakePolicy its name.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

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
  // Whether it is for what stays on the card as long as it exists.
  bool lasting() const { return kind == Kind::kContext || kind == Kind::kFixed; }

  SessionId id;
  Kind kind = Kind::kLease;
  Instant since;
  uint64_t ticket = 0;  // order of arrival, never the same for two wishes
};

class Policy {
 public:
  virtual ~Policy() = default;
  // Sorts the wishes: whoever shall be served first comes first.
  virtual void Order(std::vector<Wish>& wishes) const = 0;
};

// Null for a name it does not know. "fcfs": first come, first served.
std::unique_ptr<Policy> MakePolicy(std::string_view name);

}  // namespace tandem::core
