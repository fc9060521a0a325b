// Fixed memory that is no context, such as arrays. As for contexts, the arbiter evicts others to
// make room. It grants none where a session that is not suspended could not run beside it any more.
// Both wait for a bounded time (docs/decisions/0022).
#include <algorithm>

#include "src/core/arbiter.h"

namespace tandem::core {

void Arbiter::Handle(const event::BudgetSet& e) {
  wanted_total_ = e.total;
}

// The budget rises at once. It falls between claims, whose plans go by it, and as far as promises
// allow: what sessions are charged with, and the room that each needs to run.
void Arbiter::FollowBudget() {
  if (wanted_total_ == budget_.total()) return;
  const Bytes kept = std::max(budget_.charged(), roster_.LargestHeld() + budget_.fixed());
  const bool falls = wanted_total_ < budget_.total();
  if (falls && (claim_.has_value() || kept >= budget_.total())) return;
  budget_.SetTotal(falls ? std::max(wanted_total_, kept) : wanted_total_);
  roster_.Changed();
}
void Arbiter::Handle(const event::FixedWanted& e) {
  Session* session = roster_.Find(e.id);
  if (session == nullptr) return;
  HeardFrom(*session);
  if (session->fixed_wanted.size() >= kMostWanted) {
    actions_.emplace_back(action::Breach{e.id, "it asks for too much at once"});
    return;
  }
  session->refused.reset();
  if (!limits_.TakeFixed(e.id, e.bytes)) {
    session->refused = Refusal{Refusal::By::kLimit, e.bytes};
    actions_.emplace_back(action::FixedReserved{e.id, e.sequence, false});
    return;
  }
  session->fixed_wanted.push_back({e, now_});
  AddWish(e.id, Wish::Kind::kFixed);
}

void Arbiter::Handle(const event::FixedGone& e) {
  Session* session = roster_.Find(e.id);
  if (session == nullptr) return;
  HeardFrom(*session);
  if (e.bytes > session->fixed) {
    actions_.emplace_back(action::Breach{e.id, "it gave back memory it did not have"});
    return;
  }
  session->refused.reset();
  session->fixed -= e.bytes;
  fixed_ -= e.bytes;
  limits_.GiveFixed(e.id, e.bytes);
}

// What would not fit beside what its session has allocated itself and all else that cannot be
// swapped: the session is told what the driver would tell it. A suspended one is when it is
// resumed, or once it is not to wait any more.
void Arbiter::RefuseFixed() {
  // What fits, so does less: the host is not asked for each of a thousand that wait.
  Bytes fitted;
  const auto host_has_room = [&](const Session& session, Bytes bytes) {
    if (bytes > fitted && !HostHasRoom(session, bytes)) return false;
    fitted = std::max(fitted, bytes);
    return true;
  };
  for (const SessionId id : Listed(roster_.counted().wanting_fixed)) {
    Session& session = roster_.Touch(id);
    while (session.refuses && !session.fixed_wanted.empty()) RefuseFixed(session, 0);
    if (session.parked()) continue;
    const Bytes taken = session.must_hold() + budget_.fixed();
    for (size_t i = 0; i < session.fixed_wanted.size();) {
      const Bytes bytes = session.fixed_wanted[i].bytes;
      const bool fits = bytes <= SaturatingSubtract(budget_.total(), taken);
      if (fits && host_has_room(session, bytes)) {
        ++i;
      } else {
        session.refused = Refusal{fits ? Refusal::By::kHost : Refusal::By::kCard, bytes};
        RefuseFixed(session, i);
      }
    }
  }
}

void Arbiter::RefuseFixed(Session& session, size_t which) {
  roster_.Changed();
  const event::FixedWanted wanted = session.fixed_wanted[which];
  session.fixed_wanted.erase(session.fixed_wanted.begin() + static_cast<ptrdiff_t>(which));
  limits_.GiveFixed(session.id, wanted.bytes);
  actions_.emplace_back(action::FixedReserved{session.id, wanted.sequence, false});
  if (session.fixed_wanted.empty()) DropWish(session.id, Wish::Kind::kFixed);
}

// Whether no end of a turn brings room for it: what a session needs to run at all is in the way, or
// what does not answer.
bool Arbiter::IsHeldUp(const Wish& lasting) const {
  const Bytes stays = budget_.fixed() + roster_.sums().immovable;
  const Bytes needed = planner_.Needed(lasting);
  return planner_.WouldBar(lasting) || (needed > Bytes() && stays + needed > budget_.total());
}

// Whether the first of what a session asked for has been held up for too long. If not yet, the
// arbiter looks again then. Waiting for a turn to end does not count, nor does being suspended.
bool Arbiter::IsOverdue(const Wish& lasting, Instant asked_at, std::optional<Instant>* held_up) {
  if (roster_.at(lasting.id).parked() || !IsHeldUp(lasting)) {
    held_up->reset();
    return false;
  }
  if (!held_up->has_value()) *held_up = now_;
  const Instant late = std::max(**held_up, asked_at) + config_.fixed_wait;
  if (late <= now_) return true;
  WakeBy(late);
  return false;
}

// True if it refused anything, which may be what others wait for.
bool Arbiter::RefuseHeldUp() {
  bool refused = false;
  for (const SessionId id : Listed(roster_.counted().wanting_contexts)) {
    refused = RefuseHeldUpContexts(roster_.Touch(id)) || refused;
  }
  for (const SessionId id : Listed(roster_.counted().wanting_fixed)) {
    refused = RefuseHeldUpFixed(roster_.Touch(id)) || refused;
  }
  return refused;
}

bool Arbiter::RefuseHeldUpContexts(Session& session) {
  const Wish wish{session.id, Wish::Kind::kContext, now_};
  const size_t before = session.contexts_wanted.size();
  while (!session.contexts_wanted.empty() &&
         IsOverdue(wish, session.contexts_wanted.front(), &session.contexts_held_up)) {
    AnswerContext(session, false);
  }
  if (!session.contexts_wanted.empty()) return session.contexts_wanted.size() != before;
  DropWish(session.id, Wish::Kind::kContext);
  return before != 0;
}

bool Arbiter::RefuseHeldUpFixed(Session& session) {
  const Wish wish{session.id, Wish::Kind::kFixed, now_};
  const size_t before = session.fixed_wanted.size();
  while (!session.fixed_wanted.empty() &&
         IsOverdue(wish, session.fixed_wanted.front().asked_at, &session.fixed_held_up)) {
    RefuseFixed(session, 0);
  }
  return session.fixed_wanted.size() != before;
}

// REQUIRES: there is room for the first that it wants.
void Arbiter::GrantFixed(Session& session) {
  roster_.Changed();
  const event::FixedWanted wanted = session.fixed_wanted.front();
  session.fixed_wanted.erase(session.fixed_wanted.begin());
  session.fixed += wanted.bytes;
  fixed_ += wanted.bytes;
  session.fixed_held_up.reset();
  ChargeFixed();
  actions_.emplace_back(action::FixedReserved{session.id, wanted.sequence, true});
}

// As many as there is room for, of which there is some; all at once, as AnswerContexts.
void Arbiter::AnswerFixed(Session& session) {
  const Wish another{session.id, Wish::Kind::kFixed, now_};
  do {
    GrantFixed(session);
  } while (!session.fixed_wanted.empty() && planner_.Needed(another) <= budget_.free() &&
           !planner_.WouldBar(another));
  RefuseFixed();
  if (!session.fixed_wanted.empty()) AddWish(session.id, Wish::Kind::kFixed);
}

}  // namespace tandem::core
