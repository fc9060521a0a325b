// What the GPU's sessions need of the host's memory, which is promised to them before they allocate
// (docs/decisions/0009).
#include <algorithm>

#include "src/core/arbiter.h"

namespace tandem::core {

// Of all that is allocated, what the card does not hold, where `more` of it were taken by what
// cannot be swapped; or what room is being made for, of that kind.
Bytes Arbiter::Excess(Bytes more) const {
  if (claim_.has_value() && claim_->wish.lasting())
    more = std::max(more, planner_.Needed(claim_->wish));
  const Bytes allocated = limits_.allocated() - lapsed_;
  return SaturatingSubtract(allocated + budget_.fixed() + more, budget_.total());
}

// What it has copied there, and what it is about to, some of which may have its copy still. Without
// having run since its grant, a session changes nothing that came in. It then sends at most what
// had arrived.
Bytes Arbiter::OnHost(const Session& session) const {
  const Bytes there =
      session.restoring ? std::min(session.credit, session.arrived) : session.credit;
  const Bytes away = SaturatingSubtract(session.allocated, there);
  Bytes ordered = session.charge - session.credit;
  if (session.restoring) ordered = std::min(ordered, session.arrived);
  return std::min(session.on_host + ordered + Cold(session), std::max(session.on_host, away));
}

// Any session may be the one whose turn is over, but no session has to give up more than that.
Bytes Arbiter::HostShare(const Session& session, Bytes excess) const {
  const Bytes allocated = session.lapsed ? Bytes() : session.allocated;
  const Bytes most = session.goes() ? allocated : std::min(allocated, excess);
  return std::max(most, std::min(allocated, OnHost(session)));
}

// Of the sessions for which it may be more or less than they were promised.
HostNeeds Arbiter::NeedsOfHost(Bytes more) const {
  const Bytes excess = Excess(more);
  HostNeeds needs;
  const auto add = [&](const Session& session) {
    needs.push_back({session.id, HostShare(session, excess), session.needs_memory(),
                     std::string_view(session.tenant.user)});
  };
  if (excess != excess_) {
    for (const auto& [id, session] : roster_.all()) add(session);
  } else {
    for (const Session* session : roster_.touched()) add(*session);
  }
  return needs;
}

bool Arbiter::FitsHost(const Session& session, Bytes more) const {
  return config_.host == nullptr ||
         config_.host->Fits(config_.gpu, NeedsOfHost(more), session.tenant.user);
}

// Whether the host has room for what is allocated now. If not, the session is told, and the caller
// takes back what it has just allowed, or refuses.
bool Arbiter::HostHasRoom(const Session& session, Bytes more) {
  if (FitsHost(session, more)) return true;
  actions_.emplace_back(action::HostFull{session.id});
  return false;
}

void Arbiter::PromiseHost() {
  if (config_.host != nullptr) config_.host->Promise(config_.gpu, NeedsOfHost(Bytes()));
  excess_ = Excess(Bytes());
}

void Arbiter::SetLapsed(Session& session, bool lapsed) {
  roster_.Changed();
  session.lapsed = lapsed;
  if (lapsed) {
    lapsed_ += session.allocated;
  } else {
    lapsed_ -= session.allocated;
  }
}

// Or takes none, where the host has no room for what it has allocated.
bool Arbiter::Promise(Session& session) {
  SetLapsed(session, false);
  if (FitsHost(session, Bytes())) return true;
  SetLapsed(session, true);
  return false;
}

// From sessions that never used any of what they were promised. They get it again before they do.
void Arbiter::TakeBackPromises() {
  if (config_.host == nullptr) return;
  while (!roster_.counted().unused.empty()) {
    const auto [since, id] = *roster_.counted().unused.begin();
    if (now_ < since + config_.unused_promise) break;
    SetLapsed(roster_.Touch(id), true);
  }
  for (const SessionId id : Listed(roster_.counted().wait_for_promise)) {
    Session& session = roster_.Touch(id);
    if (Promise(session)) wishes_.Park(id, session.parked(), now_);
  }
}

}  // namespace tandem::core
