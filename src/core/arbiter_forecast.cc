// How long a session that waits will go on waiting, as far as the policy's turns say it.
#include <algorithm>

#include "src/core/arbiter.h"

namespace tandem::core {

// An upper bound where holders work through their turns, and sooner where they pause: the turn that
// ends first for the first in line, then a turn and a switch for each one before this session.
std::optional<Duration> Arbiter::ExpectedWait(SessionId id, Instant now) const {
  const Session& session = roster_.at(id);
  if (session.stuck || session.parked()) return std::nullopt;
  const Wish* const own = wishes_.FindActive(id, Wish::Kind::kLease);
  if (session.phase == Phase::kGranted) {
    return cost_.Estimate(Moves::BothWays(SaturatingSubtract(session.need, session.arrived)));
  }
  // The holders' work may take any time to end.
  if (own == nullptr || claimant() == id || IsBarred(session) ||
      planner_.Needed(*own) > budget_.total() - budget_.fixed()) {
    return std::nullopt;
  }
  const Wish* first = nullptr;
  int64_t before = 0;
  wishes_.Visit([&](const Wish& wish) {
    if (wish.id == claimant() || wish.kind != Wish::Kind::kLease) return false;
    if (first == nullptr) first = &wish;
    before += wish.id == id ? 0 : 1;
    return wish.id == id;
  });
  if (first == nullptr) return std::nullopt;
  Instant at = now;
  if (!claim_.has_value()) {
    const Plan plan = planner_.MakePlan(*first, {}, now);
    if (plan.when == Plan::When::kNever || plan.at == kNever) return std::nullopt;
    at = std::max(at, plan.at);
  } else {
    ++before;  // the claimant has its turn first
  }
  const Duration switching = cost_.Estimate(Moves::BothWays(planner_.Lacked(*own)));
  const std::optional<Duration> turn = policy_->TurnLength(Quantum());
  if (before > 0 && !turn.has_value()) return std::nullopt;
  return (at - now) + switching + (turn.value_or(Duration()) + switching) * before;
}

bool Arbiter::IsHeldBack(SessionId id) const {
  const Session& session = roster_.at(id);
  return session.waits() || session.phase == Phase::kGranted;
}

}  // namespace tandem::core
