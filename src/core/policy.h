// Policy: who is next, and for how long whoever holds a card is protected against those who wait.
// Everything else (who fits beside whom, whose bytes leave) is the same for all policies and lives
// in arbiter.h.
//
// To add one: derive from Policy in a file of its own, declare what makes it in policies.h, and
// name it in the table of policy.cc.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string_view>
#include <vector>

#include "src/core/session.h"
#include "src/core/turns.h"
#include "src/core/types.h"

namespace tandem::core {

inline constexpr Instant kNever{std::numeric_limits<int64_t>::max()};

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

// Somebody waits for what somebody else holds.
struct Contest {
  const Session& holder;
  const Session& waiter;
  const Wish& wish;  // the waiter's
  Duration cost;     // of handing the card over to it
  Duration quantum;  // that such a switch is worth (TurnRules)
  bool bytes_move;   // for that
  Instant now;
};

// By itself the class is round-robin: in the order of arrival, a quantum each.
class Policy {
 public:
  explicit Policy(const TurnRules& rules) : rules_(rules) {}
  virtual ~Policy() = default;
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;

  // Asked when the wish comes. It stays what it is while the wish waits, so that the order of those
  // who wait is kept and not made anew for every event: what shall not starve gets a rank that
  // newcomers are behind sooner or later.
  virtual int64_t Rank(const Wish& wish, const Session& session) const;
  // Until when a holder that goes on working keeps the card; kNever: until it pauses.
  virtual Instant WorksUntil(const Contest& contest) const;
  // How long it may pause.
  virtual Duration MayPause(const Contest& contest) const;
  // Whether those who fit on the card together hold it at once.
  virtual bool together() const { return !rules_.alone; }
  // The card is being taken from somebody, which costs that.
  virtual void OnSwitch(Duration cost, Instant now);

 protected:
  const TurnRules& rules() const { return rules_; }
  // A time that the policy's rule names, on the scale of a measurement.
  Duration Scaled(Duration duration) const { return duration / rules_.time_scale; }

 private:
  const TurnRules rules_;
};

// Null for a name it does not know.
std::unique_ptr<Policy> MakePolicy(std::string_view name, const TurnRules& rules);

// Those that MakePolicy knows, each with what it does, in a few words.
struct PolicyName {
  std::string_view name;
  std::string_view summary;
};
const std::vector<PolicyName>& PolicyNames();

}  // namespace tandem::core
