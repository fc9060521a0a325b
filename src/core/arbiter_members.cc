// Sessions that come, come back after a restart, and go.
#include <algorithm>

#include "src/core/arbiter.h"
#include "src/core/check.h"

namespace tandem::core {
namespace {

constexpr uint64_t kModifiedHalfLifeChunks = 32;

}  // namespace

void Arbiter::Handle(const event::SessionAdded& e) {
  const Session* const before = e.replaces.has_value() ? roster_.Find(*e.replaces) : nullptr;
  // It has been promised no more by coming back.
  const bool lapsed = before != nullptr && before->lapsed && e.allocated <= before->allocated;
  if (e.replaces.has_value()) Handle(event::SessionGone{*e.replaces});
  TANDEM_CHECK(!roster_.Has(e.id));
  if (e.budget.has_value()) wanted_total_ = std::max(wanted_total_, *e.budget);
  FollowBudget();
  Session& session = roster_.Add(e.id);
  session.window = config_.window;
  session.deadline = config_.deadline;
  session.backoff = config_.busy_backoff;
  session.modified = FadingRatio(Bytes(config_.chunk.count * kModifiedHalfLifeChunks));
  session.last_used = session.phase_since = now_;
  session.contexts = e.contexts;
  session.oversubscribes = e.oversubscribes;
  session.spills = e.spills;
  session.tenant = e.tenant;
  session.of_class = e.of_class;
  session.on_host = SaturatingSubtract(e.allocated, e.resident);
  limits_.Add(e.id, e.run, e.limit, e.allocated);
  session.allocated = e.allocated;
  session.reserved_at = now_;
  if (lapsed) SetLapsed(session, true);
  contexts_ += e.contexts;
  session.fixed = e.fixed;
  fixed_ += e.fixed;
  limits_.AddFixed(e.id, e.fixed);
  // What it claims above what is left cannot be its due: it has to go.
  session.credit = std::min(e.resident, budget_.free());
  SetCharge(session, session.credit);
  if (e.resident > session.credit) {
    session.excess = e.resident - session.credit;
    ExpectToLeave(session, e.resident);
    actions_.emplace_back(action::Evict{e.id, session.credit});
  }
}

// Memory is on the card by credit alone, and contexts and fixed memory wait for the daemon. But a
// program goes on allocating memory that can be swapped while no daemon answers, up to its limit.
// That is there, whatever room the host has: to turn it away would only leave it where it is.
bool Arbiter::MayReturn(SessionId id, event::SessionAdded* claims) const {
  const Session& session = roster_.at(id);
  claims->resident = std::min(claims->resident, session.charge + session.excess);
  claims->contexts = std::min(claims->contexts, session.contexts);
  claims->fixed = std::min(claims->fixed, session.fixed);
  if (claims->allocated <= session.allocated) return true;
  const Bytes more = claims->allocated - session.allocated;
  return more <= SaturatingSubtract(limits_.limit(id), limits_.run_used(id)) &&
         (config_.host == nullptr || config_.host->MayClaim(more, session.tenant.user));
}

void Arbiter::Handle(const event::SessionGone& e) {
  Session* session = roster_.Find(e.id);
  if (session == nullptr) return;
  SetCharge(*session, Bytes());
  if (session->lapsed) SetLapsed(*session, false);
  contexts_ -= session->contexts;
  fixed_ -= session->fixed;
  if (session->record != nullptr) Tell(std::move(*session->record));
  if (claim_.has_value() && claim_->wish.id == e.id) AbandonClaim();
  for (const Wish::Kind kind : Wish::kKinds) wishes_.Remove(e.id, kind);
  if (config_.host != nullptr) {
    config_.host->Forget(config_.gpu, e.id, session->tenant.user);
  }
  policy_->OnGone(e.id, now_);
  shares_.Forget({session->tenant.project, session->tenant.user, e.id});
  roster_.Remove(e.id);
  limits_.Remove(e.id);
}

}  // namespace tandem::core
