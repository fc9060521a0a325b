// Revocations and evictions for which no session is being served.
#include "src/core/arbiter.h"

namespace tandem::core {

// Takes lease and bytes from sessions that are suspended or wish to leave. A drain or a swap under
// way is not ordered twice; a session that did not answer is asked again when it shows itself.
void Arbiter::ClearSuspended() {
  if (claim_.has_value()) {
    const Session& served = roster_.at(claim_->wish.id);
    if (served.suspended && !served.stuck) EndClaimOf(served);
  }
  for (const SessionId id : Listed(roster_.counted().uncleared)) {
    Session& session = roster_.Touch(id);
    if (!session.holds() && !session.rooted && session.credit > Bytes()) {
      session.credit = Bytes();
      session.yields_to.reset();
      ExpectToLeave(session, session.charge);
      actions_.emplace_back(action::Evict{id, Bytes()});
    } else if (session.holds() && session.phase != Phase::kRevoking) {
      if (session.not_before <= now_) {
        SendRevoke(session, action::Why::kOrdered);
      } else {
        WakeBy(session.not_before);
      }
    }
  }
}

// Where one at a time is to have the card, but several have it since another policy let them: all
// but one come back one by one.
void Arbiter::PartHolders() {
  if (policy_->together() || claim_.has_value() || roster_.sums().holders < 2) return;
  bool one_stays = false;
  for (const SessionId id : Listed(roster_.counted().holders)) {
    Session& session = roster_.Touch(id);
    if (session.stuck || session.phase != Phase::kRunning) continue;
    if (!std::exchange(one_stays, true)) continue;
    if (session.not_before <= now_) {
      SendRevoke(session, action::Why::kOrdered);
    } else {
      WakeBy(session.not_before);
    }
  }
}

// Takes the lease from sessions that the policy bars for now. Their memory stays on the card.
void Arbiter::RevokeBarred() {
  const Pacing* const pacing = policy_->pacing();
  if (pacing == nullptr) return;
  if (claim_.has_value() && !claim_->wish.lasting()) {
    const Session& served = roster_.at(claim_->wish.id);
    if (IsBarred(served) && !served.stuck) EndClaimOf(served);
  }
  for (const SessionId id : Listed(roster_.counted().holders)) {
    const Session& session = roster_.at(id);
    if (session.stuck || session.phase == Phase::kRevoking || !IsBarred(session)) continue;
    if (session.not_before <= now_) {
      SendRevoke(roster_.Touch(id), action::Why::kOrdered);
    } else {
      WakeBy(session.not_before);
    }
  }
}

// A session is suspended while it is being served: a lease on its way goes back, any other wish
// waits.
void Arbiter::EndClaimOf(const Session& session) {
  if (claim_->wish.kind == Wish::Kind::kLease && session.holds()) {
    GiveUpClaim(action::Why::kOrdered);
  } else {
    AbandonClaim();
  }
}

}  // namespace tandem::core
