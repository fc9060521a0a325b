// Memory that cannot be swapped and is no context: arrays. As for contexts, room is made for it by
// evicting others, and it is never granted where somebody could not run any more beside it.
#include <algorithm>

#include "src/core/arbiter.h"

namespace tandem::core {
void Arbiter::Handle(const event::FixedWanted& e) {
  Session* session = roster_.Find(e.id);
  if (session == nullptr) return;
  HeardFrom(*session);
  if (session->fixed_wanted.size() >= kMostWanted) {
    actions_.emplace_back(action::Breach{e.id, "it asks for too much at once"});
    return;
  }
  if (!limits_.TakeFixed(e.id, e.bytes)) {
    actions_.emplace_back(action::FixedReserved{e.id, e.sequence, false});
    return;
  }
  session->fixed_wanted.push_back(e);
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
  session->fixed -= e.bytes;
  fixed_ -= e.bytes;
  limits_.GiveFixed(e.id, e.bytes);
}

// What would not fit beside what its session has allocated itself and all else that cannot be
// swapped: the session is told what the driver would tell it. So is everybody while somebody is
// barred: who waited could wait for one who waits for what it has.
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
    const Bytes taken = session.must_hold() + budget_.fixed();
    const bool barred = SomebodyIsBarred();
    std::erase_if(session.fixed_wanted, [&](const event::FixedWanted& wanted) {
      const bool fits = !barred && wanted.bytes <= SaturatingSubtract(budget_.total(), taken);
      if (fits && host_has_room(session, wanted.bytes)) return false;
      limits_.GiveFixed(id, wanted.bytes);
      actions_.emplace_back(action::FixedReserved{id, wanted.sequence, false});
      return true;
    });
    roster_.Changed();
    if (session.fixed_wanted.empty()) DropWish(id, Wish::Kind::kFixed);
  }
}

// REQUIRES: there is room for the first that it wants.
void Arbiter::GrantFixed(Session& session) {
  roster_.Changed();
  const event::FixedWanted wanted = session.fixed_wanted.front();
  session.fixed_wanted.erase(session.fixed_wanted.begin());
  session.fixed += wanted.bytes;
  fixed_ += wanted.bytes;
  ChargeFixed();
  actions_.emplace_back(action::FixedReserved{session.id, wanted.sequence, true});
}

// As many as there is room for, of which there is some; all at once, as AnswerContexts.
void Arbiter::AnswerFixed(Session& session) {
  const Wish another{session.id, Wish::Kind::kFixed, now_};
  do {
    GrantFixed(session);
  } while (!session.fixed_wanted.empty() && Needed(another) <= budget_.free() &&
           !WouldBar(another));
  RefuseFixed();
  if (!session.fixed_wanted.empty()) AddWish(session.id, Wish::Kind::kFixed);
}

}  // namespace tandem::core
