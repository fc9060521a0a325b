// What each event means for the arbiter's state. What follows from it: arbiter_decide.cc.
#include "src/core/arbiter.h"

#include <algorithm>

#include "src/core/check.h"

namespace tandem::core {
namespace {

constexpr Duration kShortestWindow = Microseconds(500);
constexpr Duration kLongestDeadline = Seconds(64);
constexpr Duration kLongestOfOrders = Seconds(4096);  // to suspend: no other session waits as long
constexpr Duration kLongestBackoff = Seconds(1);

}  // namespace

Arbiter::Arbiter(const ArbiterConfig& config)
    : config_(config),
      budget_(config.budget, config.spare),
      cost_(config.bytes_per_second, config.chunk),
      policy_(MakePolicy(config.policy, PolicyContext{config.turns, &shares_, &wishes_})),
      wanted_total_(config.budget),
      last_moves_(Moves::BothWays(Bytes(config.budget.count / 2))) {
  TANDEM_CHECK(policy_ != nullptr);
}

std::vector<Action> Arbiter::On(const Event& event, Instant now) {
  now_ = std::max(now, now_);
  actions_.clear();
  wake_.reset();
  std::visit([this](const auto& e) { Handle(e); }, event);
  FollowBudget();
  roster_.Changed();
  ChargeFixed();
  RefuseContexts();
  RefuseFixed();
  TakeBackPromises();
  KeepAccounts();
  Decide();
  while (RefuseHeldUp()) Decide();
  KeepAccounts();
  EndBlocks();
  UpdateContended();
  SetWake();
  PromiseHost();
  KeepTimes();
  roster_.EndEvent();
  return std::move(actions_);
}

// Only a session that the event has changed can have begun to work, or have other memory.
void Arbiter::KeepTimes() {
  for (Session* const session : roster_.touched()) {
    session->active.Set(session->working(), now_);
    session->allocated_for.Set(session->allocated + session->fixed, now_);
    session->resident_for.Set(session->charge + session->fixed, now_);
    session->swapped_for.Set(session->on_host + session->cold, now_);
  }
  busy_.Set(roster_.sums().working > 0, now_);
  held_.Set(!roster_.counted().holders.empty(), now_);
}

Bytes Arbiter::ChargeOf(SessionId id) const {
  return roster_.Has(id) ? roster_.at(id).charge : Bytes();
}

// Null also where the message is about a lease that has ended since: the two crossed.
Session* Arbiter::FindHolder(SessionId id, Epoch epoch) {
  Session* session = roster_.Find(id);
  if (session == nullptr) return nullptr;
  HeardFrom(*session);
  return session->holds() && session->epoch == epoch ? session : nullptr;
}

void Arbiter::HeardFrom(Session& session) {
  if (!session.stuck) return;
  session.stuck = false;
  if (!session.holds()) session.blocks_since.reset();
  session.expected_at = now_ + session.deadline + config_.silence;
}

// By when it has swapped out another chunk.
void Arbiter::ExpectToLeave(Session& session, Bytes from) {
  roster_.Changed();
  session.leaving_from = from;
  session.expected_at = now_ + config_.silence + cost_.MostForChunk(Way::kOut);
  if (!session.leaves_since.has_value()) session.leaves_since = now_;
}

// It can still be served, and is never asked again.
void Arbiter::Root(Session& session) {
  if (session.holds() || !session.evicting()) return;
  session.rooted = true;
  session.credit = session.charge;
  session.yields_to.reset();
}

void Arbiter::SetCharge(Session& session, Bytes charge) {
  roster_.Changed();
  budget_.Recharge(session.charge, charge);
  session.charge = charge;
}

// More than it was. What it has beyond that already is its due as far as the credit goes.
void Arbiter::SetCredit(Session& session, Bytes credit) {
  const Bytes claimed = session.charge + session.excess;
  if (session.arrived >= session.credit) session.arrives_since = now_;
  session.progressed_at = now_;
  session.credit = credit;
  session.credit_in_flight = true;
  session.excess = SaturatingSubtract(claimed, credit);
  session.rooted = session.rooted && session.excess > Bytes();
  SetCharge(session, credit);
}

void Arbiter::Handle(const event::Reserve& e) {
  Session* session = roster_.Find(e.id);
  if (session == nullptr) return;
  HeardFrom(*session);
  const Bytes before = session->allocated;
  const auto reserve = [&](Bytes total) {
    const bool allowed = limits_.Reserve(e.id, total);
    session->allocated = limits_.allocated(e.id);
    return allowed;
  };
  if (e.total <= before) {
    session->refused.reset();
    if (session->lapsed) lapsed_ -= before - e.total;
    reserve(e.total);
    return;
  }
  const bool fits_alone = session->oversubscribes || e.total <= MostResident();
  const bool lapsed = session->lapsed;
  if (lapsed) SetLapsed(*session, false);
  bool granted = fits_alone && reserve(e.total);
  auto refused_by = fits_alone ? Refusal::By::kLimit : Refusal::By::kCard;
  if (granted && !HostHasRoom(*session)) {
    granted = false;
    refused_by = Refusal::By::kHost;
    reserve(before);
  }
  session->refused.reset();
  if (!granted) session->refused = Refusal{refused_by, e.total - before};
  if (granted) {
    session->reserved_at = now_;
    if (lapsed) wishes_.Park(e.id, session->parked(), now_);
  } else if (lapsed) {
    SetLapsed(*session, true);
  }
  actions_.emplace_back(action::Reserved{e.id, e.sequence, granted});
}

void Arbiter::Handle(const event::ContextWanted& e) {
  Session* session = roster_.Find(e.id);
  if (session == nullptr) return;
  HeardFrom(*session);
  if (session->contexts_wanted.size() >= kMostWanted) {
    actions_.emplace_back(action::Breach{e.id, "it asks for too much at once"});
    return;
  }
  session->contexts_wanted.push_back(now_);
  if (contexts_ < config_.reserved && !session->suspended) {
    AnswerContext(*session, true);
  } else {
    AddWish(e.id, Wish::Kind::kContext);
  }
}

void Arbiter::AnswerContext(Session& session, bool granted) {
  roster_.Changed();
  session.contexts_wanted.erase(session.contexts_wanted.begin());
  if (granted) {
    session.contexts_held_up.reset();
    if (!session.holds()) session.rooted = false;
    ++contexts_;
    ++session.contexts;
  }
  actions_.emplace_back(action::ContextReserved{session.id, granted});
}

// A context that would not fit beside what its session has allocated itself and the contexts there
// are: the session is told what the driver would tell it. Where those contexts are others', that
// may be sooner than need be, since they may go; but nothing says that they will. A suspended one
// is told when it is resumed, or once it is not to wait any more.
void Arbiter::RefuseContexts() {
  bool host_has_room = false;  // for one, which is asked once
  for (const SessionId id : Listed(roster_.counted().wanting_contexts)) {
    Session& session = roster_.Touch(id);
    const Bytes alone = session.must_hold() + budget_.fixed() + config_.context;
    const bool may_wait = !session.refuses;
    if (may_wait && (contexts_ < config_.reserved || session.parked())) continue;
    if (may_wait && alone <= budget_.total()) {
      host_has_room = host_has_room || HostHasRoom(session, config_.context);
      if (host_has_room) continue;
    }
    while (!session.contexts_wanted.empty()) AnswerContext(session, false);
    DropWish(id, Wish::Kind::kContext);
  }
}

void Arbiter::Handle(const event::ContextGone& e) {
  Session* session = roster_.Find(e.id);
  if (session == nullptr) return;
  HeardFrom(*session);
  if (session->contexts == 0) {
    actions_.emplace_back(action::Breach{e.id, "it gave back a context it did not have"});
    return;
  }
  --session->contexts;
  --contexts_;
}

// What cannot be swapped: contexts above the reserve are charged together, so that one of them
// moves into the reserve when a place there comes free. Those from before a restart may be more
// than there is room for at first.
void Arbiter::ChargeFixed() {
  const uint64_t above = contexts_ > config_.reserved ? contexts_ - config_.reserved : 0;
  const Bytes wanted = Bytes(above * config_.context.count) + fixed_;
  budget_.SetFixed(std::min(wanted, budget_.fixed() + budget_.free()));
  CutNeeds();
}

void Arbiter::Handle(const event::Ready& e) {
  Session* session = roster_.Find(e.id);
  if (session == nullptr) return;
  HeardFrom(*session);
  // Not its limit is what bounds it: that may have fallen, and what it asks for been freed, while
  // this was under way. What it brought from before a restart may be above a budget that is still
  // to rise as others come back: then it waits.
  if (!session->oversubscribes && e.need > std::max(budget_.total(), session->allocated)) {
    actions_.emplace_back(action::Breach{e.id, "it needs more than there is"});
    return;
  }
  const Bytes need = std::min(e.need, MostNeeded(*session));
  const Bytes grown = SaturatingSubtract(need, std::max(session->need, session->credit));
  session->need = need;
  session->asked = e.need;
  session->leaving = false;
  const bool served = claim_.has_value() && claim_->wish.id == e.id && !claim_->wish.lasting();
  if (served) claim_->record.lacked += grown;  // Gather goes by the new need
  if (!session->holds()) {
    if (session->idle) EndIdle(*session);
    // No session waited when the pause began, so the holder did not report it.
    const Duration worth = cost_.Estimate(last_moves_);
    const bool paused = session->left_at.has_value() && now_ - *session->left_at > worth;
    if (paused && !session->wants_lease) session->EndBurst();
    AddWish(e.id, Wish::Kind::kLease);
    return;
  }
  if (served && session->phase == Phase::kGranted) return;
  if (need > session->credit) {
    if (session->idle) EndIdle(*session);
    AddWish(e.id, Wish::Kind::kGrowth);
  } else {
    DropWish(e.id, Wish::Kind::kGrowth);
    session->credit_in_flight = true;
    actions_.emplace_back(action::Credit{e.id, session->credit});
  }
}

void Arbiter::Handle(const event::Running& e) {
  Session* session = FindHolder(e.id, e.epoch);
  if (session == nullptr) return;
  session->credit_in_flight = session->restoring = false;
  session->on_host = Bytes();
  if (session->phase == Phase::kGranted) {
    session->waited = session->waited + (now_ - session->granted_at);
    session->Enter(Phase::kRunning, now_);
  }
  // Once for each lease, also where a Revoke has crossed it, which may be answered by Busy.
  if (session->running_since == session->granted_at) {
    session->running_since = session->active_since = session->last_used = now_;
  }
  // It has all it needs: what it asked for beyond that it has freed since.
  session->asked = session->need = std::min(session->need, session->credit);
  DropWish(e.id, Wish::Kind::kGrowth);
  Handover* record = session->record != nullptr ? session->record.get() : RecordOf(*session);
  if (record != nullptr) NoteArrived(*session, e.in, record);
  if (session->record != nullptr) Report(*session);
}

// Of the hand-over that is bringing memory to the session; null where there is none.
Handover* Arbiter::RecordOf(Session& session) {
  if (claim_.has_value() && claim_->wish.id == session.id) return &claim_->record;
  return session.record.get();
}

void Arbiter::Report(Session& session) {
  Handover record = std::move(*session.record);
  session.record.reset();
  const bool copied = record.in + record.out > Bytes();
  // A grant of fresh memory takes its time too, and that says nothing about switching.
  if (copied || record.lacked < config_.chunk) {
    // From when the last holder's work was done: until then the card was not idle.
    cost_.LearnSwitch(record.moved, now_ - record.released_at);
  }
  if (record.in > Bytes() || record.evicted > Bytes()) last_moves_ = record.moved;
  Tell(std::move(record));
}

void Arbiter::Tell(Handover record) {
  if (record.in + record.evicted == Bytes() && record.from.empty()) return;
  record.running_at = now_;
  actions_.emplace_back(action::HandoverDone{std::move(record)});
}

void Arbiter::AbandonClaim() {
  Handover record = std::move(claim_->record);
  record.given_up = true;
  for (const SessionId id : Listed(roster_.counted().yielding)) {
    if (roster_.at(id).yields_to == claim_->wish.id) roster_.Touch(id).yields_to.reset();
  }
  claim_.reset();
  std::erase_if(record.from, [&](SessionId id) {
    const Session* asked = roster_.Find(id);
    return asked != nullptr && asked->holds();  // busy, or not heard of: nothing was taken from it
  });
  Tell(std::move(record));
}

void Arbiter::Handle(const event::Idle& e) {
  Session* session = FindHolder(e.id, e.epoch);
  if (session == nullptr || session->idle || session->phase == Phase::kGranted) return;
  session->BeginPause(now_);
}

void Arbiter::Handle(const event::Active& e) {
  Session* session = FindHolder(e.id, e.epoch);
  if (session == nullptr || !session->idle) return;
  session->last_used = now_;
  EndIdle(*session);
}

void Arbiter::EndIdle(Session& session) {
  session.EndPause(now_, cost_.Estimate(last_moves_));
}

void Arbiter::Handle(const event::Released& e) {
  // Also unasked: a session whose context broke has no use for its lease.
  Session* session = FindHolder(e.id, e.epoch);
  if (session == nullptr) return;
  session->window = std::min(session->window * 2, config_.window);
  session->deadline = config_.deadline;
  session->backoff = config_.busy_backoff;
  if (claim_.has_value()) claim_->record.released_at = now_;
  EndLease(*session);
}

void Arbiter::EndLease(Session& session) {
  session.worked = session.BurstSoFar(now_);
  session.Enter(Phase::kAway, now_);
  session.held = session.held + (now_ - session.granted_at);
  session.last_used = now_;
  session.left_at = now_;
  session.credit_in_flight = false;
  if (session.record != nullptr) Tell(std::move(*session.record));
  session.record.reset();
  session.cap.reset();
  DropWish(session.id, Wish::Kind::kGrowth);
  DropWish(session.id, Wish::Kind::kLease);  // the one this lease was being given for
  session.rooted = false;
  session.leaves_since.reset();
  session.blocks_since.reset();
  if (session.excess == Bytes()) return;
  ExpectToLeave(session, session.credit + session.excess);
  actions_.emplace_back(action::Evict{session.id, session.credit});
}

void Arbiter::Handle(const event::Busy& e) {
  Session* session = FindHolder(e.id, e.epoch);
  if (session == nullptr && e.epoch == 0 && roster_.Has(e.id)) return Root(roster_.Touch(e.id));
  if (session == nullptr || session->phase != Phase::kRevoking) return;
  session->Enter(Phase::kRunning, now_);
  session->window = std::max(session->window / 2, kShortestWindow);
  session->deadline =
      std::min(session->deadline * 2, session->suspended ? kLongestOfOrders : kLongestDeadline);
  session->not_before = now_ + session->backoff;
  session->backoff = std::min(session->backoff * 2, kLongestBackoff);
  session->leaving = false;  // it has work that does not end
  // Revoked before it had all it needs: it goes on waiting for that.
  if (session->need > session->credit) AddWish(e.id, Wish::Kind::kGrowth);
}

void Arbiter::Handle(const event::Evicted& e) {
  Session* session = roster_.Find(e.id);
  if (session == nullptr) return;
  const Bytes charge = session->charge;
  const bool was_stuck = session->stuck;
  const std::optional<Instant> blocks_since = session->blocks_since;
  if (!was_stuck) NoteLeaving(session, e);
  HeardFrom(*session);
  if (e.resident > charge + session->excess) {
    actions_.emplace_back(action::Breach{e.id, "it has more on the card than its credit"});
    return;
  }
  const Bytes allocated = session->allocated;
  // What left without being copied may have its copy there from before.
  const Bytes on_host = std::max(session->on_host + std::min(e.copied, allocated), e.swapped);
  session->on_host = std::min(on_host, allocated);
  if (session->credit_in_flight) return;
  session->excess = SaturatingSubtract(e.resident, charge);
  session->rooted = session->rooted && !session->holds() && e.resident >= charge;
  if (!session->holds()) session->restoring = false;
  if (session->holds()) session->asked = session->need = std::min(session->need, e.resident);
  const Bytes asked = session->credit;  // to keep: what goes beyond that it gives up by itself
  session->credit = std::min(session->credit, e.resident);
  const Bytes left = std::min(charge, std::max(session->credit, e.resident));
  SetCharge(*session, left);
  // It must free a chunk in that time. Otherwise a session that frees single bytes could keep all
  // others waiting for ever.
  if (!session->holds() && e.resident + config_.chunk <= session->leaving_from) {
    chunk_left_by_ = now_ + config_.silence + cost_.MostForChunk(Way::kOut);
    session->blocks_since.reset();
    if (session->evicting()) ExpectToLeave(*session, e.resident);
  } else if (was_stuck && e.resident >= charge && session->evicting()) {
    // It can give nothing now, such as for want of a context. It may get what it lacks.
    Root(*session);
    session->blocks_since = blocks_since;
  }
  if (!session->yields_to.has_value()) return;
  Session* to = roster_.Find(*session->yields_to);
  if (Handover* record = to != nullptr ? RecordOf(*to) : nullptr; record != nullptr) {
    record->evicted += std::max(SaturatingSubtract(charge, std::max(left, asked)), e.copied);
    record->out += e.copied;
    CountOut(SaturatingSubtract(charge, left), e, &record->moved);
  }
  if (left == session->credit) session->yields_to.reset();
}

// Decide does the rest.
void Arbiter::Handle(const event::Suspended& e) {
  Session* session = roster_.Find(e.id);
  if (session == nullptr) return;
  session->refuses = e.suspended && e.refuses;
  if (session->suspended == e.suspended) return;
  session->suspended = e.suspended;
  session->suspended_at = now_;
  if (!e.suspended) session->deadline = std::min(session->deadline, kLongestDeadline);
  // Time spent suspended is none spent waiting for others.
  const Wish* const wish = wishes_.FindActive(e.id, Wish::Kind::kLease);
  if (e.suspended && wish != nullptr && !session->holds()) {
    session->waited = session->waited + (now_ - wish->since);
  }
  wishes_.Park(e.id, session->parked(), now_);
}

void Arbiter::Handle(const event::LimitSet& e) {
  limits_.SetLimit(e.run, e.limit);
}

void Arbiter::Handle(const event::Tick& /*e*/) {
  const Roster::ByTime& expected = roster_.counted().expected;
  for (auto late = expected.begin(); late != expected.end() && late->first <= now_; ++late) {
    Session& session = roster_.Touch(late->second);
    if (!session.holds() && chunk_left_by_ > now_) {
      session.expected_at = chunk_left_by_;  // they leave over one bus, one chunk after the other
      continue;
    }
    session.stuck = true;
    if (!session.blocks_since.has_value()) session.blocks_since = now_;
    session.yields_to.reset();  // others yield for it; memory that it gives later has no claimant
  }
}

std::optional<SessionId> Arbiter::claimant() const {
  if (!claim_.has_value()) return std::nullopt;
  return claim_->wish.id;
}

bool Arbiter::taking_turns() const {
  const Sums& sums = roster_.sums();
  return budget_.fixed() + sums.wanted > budget_.total() ||
         (!policy_->together() && sums.wanting > 1);
}

}  // namespace tandem::core
