// Policy: ranks the sessions that wait, and says how long a holder is protected against them. What
// fits beside what, and whose bytes leave, is the same for all policies (planner.h, arbiter.h).
//
// To add one: derive from Policy in a file of its own, declare what makes it in policies.h, and
// name it in the table of policy.cc.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "src/core/session.h"
#include "src/core/shares.h"
#include "src/core/turns.h"
#include "src/core/types.h"
#include "src/core/wish_queue.h"

namespace tandem::core {

inline constexpr Instant kNever{std::numeric_limits<int64_t>::max()};

// One session waits for what another one holds.
struct Contest {
  const Session& holder;
  const Session& waiter;
  const Wish& wish;  // the waiter's
  Duration cost;     // of handing the card over to it
  Duration quantum;  // that such a switch is worth (TurnRules)
  bool bytes_move;   // for that
  Instant now;
};

// Of a policy under which some sessions get the card only as far as that does not disturb others,
// even if all fit.
class Pacing {
 public:
  virtual ~Pacing() = default;

  // Whether the session gets no lease now, also if it fits. Its memory may stay on the card.
  virtual bool Bars(const Session& session) const = 0;
  // When that may change without an event; kNever: it will not.
  virtual Instant ChangesAt() const = 0;
  // Whether the policy needs to know when a holder pauses, even if no session waits for it.
  virtual bool Watches(const Session& holder) const = 0;
  // Whether a holder bounds its work in flight, since others wait, or may need the card soon.
  virtual bool IsContended(const Session& holder) const = 0;
  // How much work it may have in flight, where `usual` is what others may.
  virtual Duration Window(const Session& session, Duration usual) const = 0;
};

// What a policy is made with. All but the rules outlives it.
struct PolicyContext {
  TurnRules rules;
  const Shares* shares;
  WishQueue* queue;  // whose groups are the policy's
};

// By itself the class is round-robin: in the order of arrival, a quantum each.
class Policy {
 public:
  explicit Policy(const TurnRules& rules) : rules_(rules) {}
  virtual ~Policy() = default;
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;

  // Gives a wish that has come its rank, and its group where the policy has some. A rank stays what
  // it is while the wish waits, so that the order of those who wait is kept and not made anew for
  // every event: what shall not starve gets a rank that newcomers are behind sooner or later.
  // Groups may be ranked anew at any time.
  virtual void Place(const Session& session, Wish* wish);
  // How long a turn is that such a switch is worth `quantum`; nothing: until its holder pauses.
  virtual std::optional<Duration> TurnLength(Duration quantum) const { return quantum; }
  // When the turn of a holder that goes on working is over; kNever: when it pauses.
  virtual Instant TurnEnds(const Contest& contest) const;
  // When it is interrupted before that, in favour of the waiter; kNever: it is not.
  virtual Instant InterruptsAt(const Contest& contest) const;
  // Whether the waiter gets the card at once, even where the holder is only being brought in.
  virtual bool Outranks(const Contest& contest) const;
  // How long it may pause.
  virtual Duration MayPause(const Contest& contest) const;
  // Whether those who fit on the card together hold it at once.
  virtual bool together() const { return !rules_.alone; }
  // A holder is being revoked; the switch costs that.
  virtual void OnSwitch(Duration cost, Instant now);

  // Null if every session that fits may work.
  virtual const Pacing* pacing() const { return nullptr; }

  // Of policies that keep accounts of who has had what, which are told more.
  virtual bool keeps_accounts() const { return false; }
  virtual void OnSession(const Session& session, Instant now);  // it is new, or has changed
  virtual void OnGone(SessionId id, Instant now);               // after its wishes
  virtual void OnShares(Instant now);                           // a share has changed
  virtual void BeforeChoice(Instant now);                       // a session is about to be chosen

 protected:
  const TurnRules& rules() const { return rules_; }
  // A time that the policy's rule names, on the scale of a measurement.
  Duration Scaled(Duration duration) const { return duration / rules_.time_scale; }

 private:
  const TurnRules rules_;
};

// Null for a name it does not know.
std::unique_ptr<Policy> MakePolicy(std::string_view name, const PolicyContext& context);

// Whether MakePolicy knows it.
bool IsPolicyName(std::string_view name);

// The policies for users, each with what it does, in a few words.
struct PolicyName {
  std::string_view name;
  std::string_view summary;
};
const std::vector<PolicyName>& PolicyNames();

}  // namespace tandem::core
