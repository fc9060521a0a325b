#include "src/core/roster.h"

#include <utility>

#include "src/core/check.h"

namespace tandem::core {
namespace {

// The session was in the set, and now is.
void Move(Roster::Ids* ids, SessionId id, bool was, bool is) {
  if (was == is) return;
  if (is) {
    ids->insert(id);
  } else {
    ids->erase(id);
  }
}

void Move(Roster::ByTime* times, SessionId id, std::optional<Instant> was,
          std::optional<Instant> is) {
  if (was == is) return;
  if (was.has_value()) times->erase({*was, id});
  if (is.has_value()) times->emplace(*is, id);
}

void Take(std::map<Bytes, uint32_t>* amounts, Bytes amount) {
  const auto at = amounts->find(amount);
  if (--at->second == 0) amounts->erase(at);
}

void Change(Roster::Counted* all, SessionId id, const Tally& was, const Tally& is) {
  all->sums -= was.sums;
  all->sums += is.sums;
  if (was.asked != is.asked) {
    if (was.asked.has_value()) Take(&all->asked, *was.asked);
    if (is.asked.has_value()) ++all->asked[*is.asked];
  }
  if (was.must_hold != is.must_hold) {
    Take(&all->must_hold, was.must_hold);
    ++all->must_hold[is.must_hold];
  }
  Move(&all->holders, id, was.holds, is.holds);
  Move(&all->keeping_memory, id, was.keeps_memory, is.keeps_memory);
  Move(&all->wanting_contexts, id, was.wants_contexts, is.wants_contexts);
  Move(&all->wanting_fixed, id, was.wants_fixed, is.wants_fixed);
  Move(&all->cut_needs, id, was.need_is_cut, is.need_is_cut);
  Move(&all->yielding, id, was.yields, is.yields);
  Move(&all->uncleared, id, was.uncleared, is.uncleared);
  Move(&all->expected, id, was.expected_at, is.expected_at);
  Move(&all->wait_for_promise, id, was.waits_for_promise, is.waits_for_promise);
  Move(&all->unused, id, was.unused_since, is.unused_since);
  Move(&all->blocking, id, was.blocks_since, is.blocks_since);
  Move(&all->cold, id, was.cold_since, is.cold_since);
}

}  // namespace

Session& Roster::Add(SessionId id) {
  Session& session = sessions_[id];
  session.id = id;
  by_id_[id.value] = &session;
  ++counted_.must_hold[Tally().must_hold];
  return Touch(id);
}

void Roster::Remove(SessionId id) {
  Session& session = sessions_.at(id);
  std::erase(touched_, &session);
  Change(&counted_, id, session.counted, Tally());
  Take(&counted_.must_hold, Tally().must_hold);
  by_id_.erase(id.value);
  sessions_.erase(id);
}

Session& Roster::Touch(SessionId id) {
  return *Find(id);
}

Session* Roster::Find(SessionId id) {
  const auto at = by_id_.find(id.value);
  if (at == by_id_.end()) return nullptr;
  dirty_ = true;
  Session& session = *at->second;
  if (!session.touched) touched_.push_back(&session);
  session.touched = true;
  return &session;
}

void Roster::EndEvent() {
  dirty_ = true;
  counted();
  changed_.clear();
  for (Session* const session : touched_) {
    session->touched = false;
    changed_.push_back(session->id);
  }
  touched_.clear();
}

const Roster::Counted& Roster::counted() const {
  if (std::exchange(dirty_, false)) {
    for (Session* const session : touched_) Count(*session);
  }
#if !defined(NDEBUG)
  constexpr uint32_t kEvery = 8;  // or tests would take minutes
  TANDEM_CHECK(++asked_ % kEvery != 0 || counted_ == Recounted());
#endif
  return counted_;
}

Bytes Roster::LargestHeld() const {
  const auto& must_hold = counted().must_hold;
  return must_hold.empty() ? Bytes() : must_hold.rbegin()->first;
}

Roster::Counted Roster::Recounted() const {
  Counted all;
  for (const auto& [id, session] : sessions_) {
    ++all.must_hold[Tally().must_hold];
    Change(&all, id, Tally(), session.Count());
  }
  return all;
}

void Roster::Count(Session& session) const {
  const Tally now = session.Count();
  if (now == session.counted) return;
  Change(&counted_, session.id, session.counted, now);
  session.counted = now;
}

}  // namespace tandem::core
