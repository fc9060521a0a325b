// The wishes of sessions, and the policy that orders them.
#include <algorithm>
#include <iterator>

#include "src/core/arbiter.h"

namespace tandem::core {

void Arbiter::AddWish(SessionId id, Wish::Kind kind) {
  if (wishes_.Has(id, kind)) return;
  Wish wish{id, kind, now_, ++last_ticket_};
  Session& session = roster_.Touch(id);
  policy_->Place(session, &wish);
  if (kind == Wish::Kind::kLease) session.wants_lease = true;
  if (kind == Wish::Kind::kGrowth) session.wants_growth = true;
  if (session.lapsed) session.asked_at = now_;
  wishes_.Add(wish, session.parked());
}

void Arbiter::DropWish(SessionId id, Wish::Kind kind) {
  const Wish* const growth = kind == Wish::Kind::kGrowth ? wishes_.FindActive(id, kind) : nullptr;
  if (growth != nullptr) {
    Session& session = roster_.Touch(id);
    session.waited = session.waited + (now_ - growth->since);
  }
  wishes_.Remove(id, kind);
  if (kind == Wish::Kind::kLease) roster_.Touch(id).wants_lease = false;
  if (kind == Wish::Kind::kGrowth) roster_.Touch(id).wants_growth = false;
  const bool claimed = claim_.has_value() && claim_->wish.id == id && claim_->wish.kind == kind;
  if (claimed) AbandonClaim();
}

// Where the lease has been granted meanwhile it has it, and pauses.
void Arbiter::Handle(const event::NotReady& e) {
  Session* session = roster_.Find(e.id);
  if (session == nullptr) return;
  HeardFrom(*session);
  if (!session->holds()) DropWish(e.id, Wish::Kind::kLease);
}

// Not where its threads may wait for something, or the host has no room for it.
void Arbiter::Handle(const event::Leaving& e) {
  if (!roster_.Has(e.id)) return;
  const auto waits = [&](Wish::Kind kind) { return wishes_.Has(e.id, kind); };
  if (std::any_of(std::begin(Wish::kKinds), std::end(Wish::kKinds), waits)) return;
  Session& session = roster_.Touch(e.id);
  session.leaving = true;
  session.leaving = FitsHost(session, Bytes());
}

std::vector<Wish> Arbiter::Waiting() const {
  std::vector<Wish> waiting;
  wishes_.Visit([&](const Wish& wish) {
    waiting.push_back(wish);
    return false;
  });
  return waiting;
}

void Arbiter::Handle(const event::PolicySet& e) {
  auto policy = MakePolicy(e.policy, PolicyContext{config_.turns, &shares_, &wishes_});
  if (policy == nullptr || e.policy == config_.policy) return;
  config_.policy = e.policy;
  // Their ranks are of another policy: no session has waited too long by this one.
  for (const SessionId id : Listed(roster_.counted().holders)) {
    Session& holder = roster_.Touch(id);
    holder.rank = holder.granted_at.ns + 1;
  }
  const auto change = [&] {
    policy_ = std::move(policy);
    for (const auto& [id, session] : roster_.all()) policy_->OnSession(session, now_);
  };
  wishes_.Rerank(change, [&](Wish* wish) { policy_->Place(roster_.at(wish->id), wish); });
}

// Whatever it waits for it goes on waiting for, among others.
void Arbiter::Handle(const event::ClassSet& e) {
  Session* const session = roster_.Find(e.id);
  if (session == nullptr || session->of_class == e.of_class) return;
  session->of_class = e.of_class;
  policy_->OnSession(*session, now_);
  wishes_.RerankOf(e.id, [&](Wish* wish) { policy_->Place(*session, wish); });
}

void Arbiter::Handle(const event::Declared& e) {
  Session* const session = roster_.Find(e.id);
  if (session == nullptr) return;
  roster_.Touch(e.id).Declare(e.burst, now_);
  wishes_.RerankOf(e.id, [&](Wish* wish) { policy_->Place(*session, wish); });
}

void Arbiter::Handle(const event::ShareSet& e) {
  shares_.Set(e.of, e.share);
  policy_->OnShares(now_);
}

void Arbiter::KeepAccounts() {
  if (!policy_->keeps_accounts()) return;
  for (const Session* session : roster_.touched()) policy_->OnSession(*session, now_);
}

}  // namespace tandem::core
