// Sessions that need more than fits on the card: those that may allocate more
// (docs/decisions/0016), and those that ask for room for what they will allocate.
#include <algorithm>

#include "src/core/arbiter.h"

namespace tandem::core {

Bytes Arbiter::MostResident(const Session& session) const {
  const Bytes own = session.immovable() ? session.charge : Bytes();
  return SaturatingSubtract(MostResident(), roster_.sums().immovable - own);
}

Bytes Arbiter::MostNeeded(const Session& session) const {
  return session.oversubscribes ? MostResident(session)
                                : std::max(session.allocated, MostResident());
}

// Needs beyond the card's room are cut to that room. It shrinks and grows with the memory that
// cannot leave.
void Arbiter::CutNeeds() {
  for (const SessionId id : Listed(roster_.counted().cut_needs)) {
    const Bytes most = MostNeeded(roster_.at(id));
    Session& session = roster_.Touch(id);
    session.need = std::min(session.asked, most);
    if (!session.oversubscribes) continue;
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
