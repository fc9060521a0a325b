// Planner: what it takes to fulfil a wish: which holders must yield, when, and what that moves.
//
// It reads an arbiter's state and changes nothing. The arbiter carries plans out (arbiter.h).
//
// Threading: none; the caller serialises.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "src/core/arbiter_config.h"
#include "src/core/budget.h"
#include "src/core/policy.h"
#include "src/core/roster.h"
#include "src/core/switch_cost.h"
#include "src/core/types.h"
#include "src/core/wish_queue.h"

namespace tandem::core {

struct Plan {
  enum class When { kNow, kLater, kNever };
  When when = When::kNever;
  Instant at;  // kLater: when the last holder concerned yields
  struct Leaving {
    SessionId id;
    action::Why why;
  };
  std::vector<Leaving> revoke;
};

// Sessions that wait for a turn to end though they could be served, and the memory they keep on the
// card meanwhile.
struct Ahead {
  std::vector<SessionId> ids;
  Bytes kept;

  // REQUIRES: the session's wish waits.
  void Add(const Session& session);
  // Whether the session waits with another of its wishes, and `kept` includes its charge.
  bool Keeps(const Session& session) const;
};

class Planner {
 public:
  // The arbiter's state. All of it outlives the planner.
  struct State {
    const ArbiterConfig& config;
    const Budget& budget;
    const SwitchCost& cost;
    const WishQueue& wishes;
    const Roster& roster;
    const std::unique_ptr<Policy>& policy;
    const uint32_t& contexts;  // on the card, of all sessions
  };
  explicit Planner(const State& state)
      : config_(state.config),
        budget_(state.budget),
        cost_(state.cost),
        wishes_(state.wishes),
        roster_(state.roster),
        policy_(state.policy),
        contexts_(state.contexts) {}

  // Behind sessions that are ahead a wish revokes no holder.
  Plan MakePlan(const Wish& wish, const Ahead& ahead, Instant now) const;
  // Whether the session's state allows to serve the wish at all.
  bool MayBeServed(const Wish& wish) const;
  // Whether others' work keeps the session from a lease now (Pacing in policy.h).
  bool IsBarred(const Session& session) const;
  // Whether it is worth serving a session that must yield again at `cap`.
  bool MaySlipIn(const Wish& wish, std::optional<Instant> cap, Instant now) const;
  // True: of the waiting sessions, only those that keep memory on the card may slip in. The others
  // lack all that they need, and the smallest need is too much. False: others may, too.
  bool OnlyKeptMemorySlipsIn(Instant cap, Instant now) const;
  // True: no waiting session fits beside the holders and those ahead. False: one may fit.
  bool NobodyFits(const Ahead& ahead) const;

  // Bytes the wish needs on the card, and of these the bytes its session does not have there yet.
  Bytes Needed(const Wish& wish) const;
  Bytes Lacked(const Wish& wish) const;
  // Bytes that could be made free for a wish without a revocation, its session's own included.
  Bytes Room(const Wish& wish, const Ahead& ahead) const;
  // Whether `room` and the policy allow to fulfil the wish beside the present holders.
  bool HasRoom(const Wish& wish, Bytes room) const;
  // Whether with these bytes on the card some session could never run again.
  bool WouldBar(const Wish& lasting) const;

  // What serving the wish moves, with `free` bytes free and the rest from `from` (null: unknown).
  Moves MovesFor(const Wish& wish, const Session* from, Bytes free) const;

 private:
  // When a holder gives way, and what makes it.
  struct Yield {
    Instant at;
    action::Why why;
  };

  // All that sessions wait for are leases.
  bool LeasesOnly() const;
  // Whether a turn of that length is worth moving these bytes in and out again.
  bool IsWorthMoving(Bytes lacked, Duration turn) const;
  bool MustBeAlone(const Wish& wish) const;
  Instant MayJoinAt(const Wish& wish, Bytes room, Instant now) const;
  Plan PlanRevocations(const Wish& wish, Bytes room, Instant now) const;
  // When the holder gives way to a wish that does not fit beside it.
  Yield YieldsAt(const Session& holder, const Wish& to, Instant now) const;
  // When no more memory can be expected to arrive for a session that is being restored.
  Instant StallsAt(const Session& holder) const;
  // Of `bytes` of the session on the host, those in its file. Host memory is taken first.
  Bytes FilePart(SessionId id, Bytes bytes) const;
  Duration QuantumFor(const Wish& wish, const Session* from) const;

  const ArbiterConfig& config_;
  const Budget& budget_;
  const SwitchCost& cost_;
  const WishQueue& wishes_;
  const Roster& roster_;
  const std::unique_ptr<Policy>& policy_;
  const uint32_t& contexts_;
};

}  // namespace tandem::core
