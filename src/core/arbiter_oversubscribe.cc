// Sessions that may allocate more than fits on the card (docs/decisions/0016).
#include <algorithm>

#include "src/core/arbiter.h"

namespace tandem::core {

Bytes Arbiter::MostResident(const Session& session) const {
  Bytes most = MostResident();
  for (const auto& [id, other] : sessions_) {
    if (id == session.id || !other.immovable()) continue;
    most = SaturatingSubtract(most, budget_.charge(id));
  }
  return most;
}

// What one that oversubscribes wishes for falls where more is taken that cannot leave, and rises
// again with what it can get.
void Arbiter::CutNeeds() {
  for (auto& [id, session] : sessions_) {
    if (!session.oversubscribes) continue;
    const Bytes most = MostResident(session);
    session.need = std::min(session.asked, most);
    if (session.phase == Phase::kRunning) {
      session.cold = std::max(Cold(session), SaturatingSubtract(limits_.allocated(id), most));
    }
    const bool served = claim_.has_value() && claim_->wish.id == id;
    if (session.holds() && !served && session.need > session.credit) {
      AddWish(id, Wish::Kind::kGrowth);
    }
  }
}

// What the card must have room for, or the session could never run.
Bytes Arbiter::MustHold(const Session& session) const {
  return session.oversubscribes ? Bytes() : limits_.allocated(session.id);
}

// Of one that oversubscribes, what it has had to reach on the host while it ran: that may stay.
Bytes Arbiter::Cold(const Session& session) const {
  return std::min(session.cold, limits_.allocated(session.id));
}

}  // namespace tandem::core
