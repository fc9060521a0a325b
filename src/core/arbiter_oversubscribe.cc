// Sessions that may allocate more than fits on the card (docs/decisions/0016).
#include <algorithm>

#include "src/core/arbiter.h"

namespace tandem::core {

Bytes Arbiter::MostResident(const Session& session) const {
  const Bytes own = session.immovable() ? session.charge : Bytes();
  return SaturatingSubtract(MostResident(), roster_.sums().immovable - own);
}

// What one that oversubscribes wishes for falls where more is taken that cannot leave, and rises
// again with what it can get.
void Arbiter::CutNeeds() {
  for (const SessionId id : Listed(roster_.counted().oversubscribing)) {
    const Bytes most = MostResident(roster_.at(id));
    Session& session = roster_.Touch(id);
    session.need = std::min(session.asked, most);
    if (session.phase == Phase::kRunning) {
      session.cold = std::max(Cold(session), SaturatingSubtract(session.allocated, most));
    }
    const bool served = claim_.has_value() && claim_->wish.id == id;
    if (session.holds() && !served && session.need > session.credit) {
      AddWish(id, Wish::Kind::kGrowth);
    }
  }
}

// Of one that oversubscribes, what it has had to reach on the host while it ran: that may stay.
Bytes Arbiter::Cold(const Session& session) const {
  return std::min(session.cold, session.allocated);
}

}  // namespace tandem::core
