// Decides from the arbiter's state which wish is served next, which leases are revoked for it, and
// which bytes leave the card.
#include <algorithm>

#include "src/core/arbiter.h"
#include "src/core/check.h"

namespace tandem::core {
namespace {

// Other GPUs' sessions may give back what the host has promised them.
constexpr Duration kPromisePause = Seconds(1);

}  // namespace

void Arbiter::Decide() {
  policy_->BeforeChoice(now_);
  ClearSuspended();
  PartHolders();
  RevokeBarred();
  // Every round fulfils, starts or gives up something, and none can come twice for one event.
  for (size_t left = 4 * (roster_.all().size() + wishes_.size()) + 4; left > 0; --left) {
    if (!(claim_.has_value() ? Advance() : Choose())) break;
  }
}

// ---- Choosing

bool Arbiter::Choose() {
  // A holder that grows goes on with its turn where no other holder must leave for it.
  for (const Wish& wish : wishes_.growing()) {
    if (!planner_.MayBeServed(wish) || planner_.Needed(wish) > planner_.Room(wish, {})) continue;
    Begin(wish, Plan{Plan::When::kNow, now_, {}}, std::nullopt);
    return true;
  }
  // A session behind those that wait for a turn to end may slip in beside the holders. It neither
  // evicts their memory nor makes them wait longer.
  Ahead ahead;
  std::optional<Instant> cap;
  // True: no later wish can be served.
  const auto consider = [&](const Wish& wish) {
    if (!planner_.MayBeServed(wish) || !planner_.MaySlipIn(wish, cap, now_)) return false;
    const Plan plan = planner_.MakePlan(wish, ahead, now_);
    if (plan.when == Plan::When::kNow) {
      Begin(wish, plan, cap);
      return true;
    }
    if (plan.when == Plan::When::kNever) return false;
    WakeBy(plan.at);
    ahead.Add(roster_.at(wish.id));
    cap = std::min(cap.value_or(plan.at), plan.at);
    return planner_.NobodyFits(ahead);
  };
  // Many may wait, but few of them keep memory: the rest of the line is not walked for those.
  const Wish* few_after = nullptr;
  wishes_.Visit([&](const Wish& wish) {
    if (consider(wish)) return true;
    if (cap.has_value() && planner_.OnlyKeptMemorySlipsIn(*cap, now_)) few_after = &wish;
    return few_after != nullptr;
  });
  if (few_after == nullptr) return claim_.has_value();
  std::vector<const Wish*> few;
  for (const SessionId id : roster_.counted().keeping_memory) {
    const Wish* const wish = wishes_.FindActive(id, Wish::Kind::kLease);
    if (wish != nullptr && planner_.MaySlipIn(*wish, cap, now_)) few.push_back(wish);
  }
  for (const Wish* wish : wishes_.Behind(*few_after, few)) {
    if (consider(*wish)) break;
  }
  return claim_.has_value();
}

// ---- Serving

void Arbiter::Begin(const Wish& wish, const Plan& plan, std::optional<Instant> cap) {
  claim_ = Claim{wish, cap, false, {}};
  Handover& record = claim_->record;
  record.to = wish.id;
  record.epoch = roster_.at(wish.id).epoch;
  for (const Plan::Leaving& leaving : plan.revoke) record.from.push_back(leaving.id);
  if (!plan.revoke.empty()) record.why = plan.revoke.front().why;
  // Bytes that were lent in vain are taken back with it.
  record.lacked = planner_.Lacked(wish) + SaturatingSubtract(budget_.charged(), budget_.total());
  record.free = budget_.free();
  record.revoked_at = record.released_at = now_;
  if (!plan.revoke.empty()) {
    const Session& first = roster_.at(plan.revoke.front().id);
    policy_->OnSwitch(cost_.Estimate(planner_.MovesFor(wish, &first, budget_.free())), now_);
  }
  for (const auto& [id, why] : plan.revoke) SendRevoke(roster_.Touch(id), why);
}

// True if the claim ended, one way or the other.
bool Arbiter::Advance() {
  if (!claim_->gathering) {
    const Wish& wish = claim_->wish;
    if (!planner_.HasRoom(wish, planner_.Room(wish, {}))) {
      if (roster_.sums().revoking > 0) return false;
      AbandonClaim();  // busy or stuck: choose anew, without it
      return true;
    }
    claim_->gathering = true;
    if (wish.kind == Wish::Kind::kLease) SendGrant(roster_.Touch(wish.id));
  }
  return Gather();
}

bool Arbiter::Gather() {
  const Wish wish = claim_->wish;
  if (wish.lasting() && planner_.WouldBar(wish)) {
    AbandonClaim();  // a session has allocated more since; the wish waits
    return true;
  }
  const Bytes lacking = SaturatingSubtract(planner_.Lacked(wish), budget_.free());
  // Lent bytes have to come back, too, if a session can give them.
  const Bytes wanted = lacking + SaturatingSubtract(budget_.charged(), budget_.total());
  const Bytes coming = Coming();
  const bool ordered = coming >= wanted || OrderEvictions(wanted - coming);
  if (!ordered && coming < lacking && !OrderEvictions(lacking - coming)) {
    GiveUpClaim(action::Why::kHeldUp);
    return true;
  }
  if (!wish.lasting()) RaiseCredit(roster_.Touch(wish.id));
  const bool lent = budget_.charged() > budget_.total() && Coming() > Bytes();
  if (lacking > Bytes() || lent) return false;
  Fulfil();
  return true;
}

void Arbiter::SendGrant(Session& session) {
  roster_.Changed();
  session.Enter(Phase::kGranted, now_);
  session.epoch = claim_->record.epoch = ++last_epoch_;
  session.granted_at = session.running_since = session.active_since = now_;
  session.asked_at = claim_->wish.since;
  session.cap = claim_->cap;
  session.had_its_turn = false;
  session.rank = claim_->wish.rank;
  session.waited = session.waited + (now_ - claim_->wish.since);
  ++session.leases;
  const Bytes charge = session.charge;
  // Of an earlier lease under which it has not run, some may still be on the host.
  session.arrived = session.restoring ? std::min(session.arrived, charge) : charge;
  session.arriving_from = session.arrived;
  session.restoring = true;
  session.leaves_since.reset();
  SetCredit(session, charge + std::min(SaturatingSubtract(session.need, charge), budget_.free()));
  session.arrives_since = now_;
  const Pacing* const pacing = policy_->pacing();
  const Duration window =
      pacing != nullptr ? pacing->Window(session, session.window) : session.window;
  actions_.emplace_back(action::Grant{session.id, session.epoch, session.credit, window});
}

// Gives the claimant the free bytes, up to its need, and one chunk of the bytes that others are
// evicting. The first chunk then comes in while the first one goes out.
void Arbiter::RaiseCredit(Session& session) {
  Bytes room = budget_.free();
  if (claim_->wish.kind == Wish::Kind::kLease) {
    // Uncharged bytes on the card cannot be lent.
    room += SaturatingSubtract(budget_.Lendable(Coming()), roster_.sums().excess);
  }
  const Bytes charge = session.charge;
  const Bytes more = std::min(SaturatingSubtract(session.need, charge), room);
  if (more == Bytes()) return;
  SetCredit(session, charge + more);
  actions_.emplace_back(action::Credit{session.id, session.credit});
}

void Arbiter::SendRevoke(Session& session, action::Why why) {
  roster_.Changed();
  session.Enter(Phase::kRevoking, now_);
  session.had_its_turn = why == action::Why::kTurnEnded;
  session.expected_at = now_ + session.deadline + config_.silence;
  if (!session.blocks_since.has_value()) session.blocks_since = now_;
  actions_.emplace_back(action::Revoke{session.id, session.epoch, session.deadline, why});
}

// Bytes that sessions are swapping out and can be counted on.
Bytes Arbiter::Coming() const {
  return roster_.sums().coming;
}

// Coldest first among those who want nothing, then those who wait, the last in the queue first.
// All of a session's memory before the next one's, so that only the last undershoots its target.
bool Arbiter::OrderEvictions(Bytes bytes) {
  if (roster_.sums().evictable < bytes) return false;
  while (bytes > Bytes() && !roster_.counted().cold.empty()) {
    bytes -= OrderEviction(roster_.counted().cold.begin()->second, bytes);
  }
  if (bytes == Bytes()) return true;
  wishes_.VisitLastFirst([&](const Wish& wish) {
    const Session& session = roster_.at(wish.id);
    const bool can = !session.holds() && !session.immovable();
    if (can && wish.kind == Wish::Kind::kLease) bytes -= OrderEviction(wish.id, bytes);
    return bytes == Bytes();
  });
  return true;
}

// Orders one session to evict at most `bytes`. Returns the bytes ordered.
Bytes Arbiter::OrderEviction(SessionId id, Bytes bytes) {
  Session& victim = roster_.Touch(id);
  const Bytes part = std::min(bytes, victim.credit);
  if (part == Bytes()) return part;
  victim.credit -= part;
  victim.yields_to = claim_->wish.id;
  ExpectToLeave(victim, victim.charge);
  actions_.emplace_back(action::Evict{id, victim.credit});
  return part;
}

void Arbiter::Fulfil() {
  const Wish wish = claim_->wish;
  Handover record = std::move(claim_->record);
  claim_.reset();
  DropWish(wish.id, wish.kind);
  Session& session = roster_.Touch(wish.id);
  if (wish.kind == Wish::Kind::kLease) {
    session.record = std::make_unique<Handover>(std::move(record));  // told once it runs
    if (session.phase == Phase::kRunning) Report(session);
    return;
  }
  Tell(std::move(record));
  if (wish.kind == Wish::Kind::kContext) AnswerContexts(session);
  if (wish.kind == Wish::Kind::kFixed) AnswerFixed(session);
}

// As many as there is room for, of which there is some. All at once, so that the rounds of Decide
// do not depend on how many a session asks for.
void Arbiter::AnswerContexts(Session& session) {
  const Wish another{session.id, Wish::Kind::kContext, now_};
  do {
    AnswerContext(session, true);
    ChargeFixed();
  } while (!session.contexts_wanted.empty() && planner_.Needed(another) <= budget_.free() &&
           !planner_.WouldBar(another));
  RefuseContexts();  // those for which there never will be
  if (!session.contexts_wanted.empty()) AddWish(session.id, Wish::Kind::kContext);
}

// A session it counted on has died or fallen silent, or its own need has grown too large. It gives
// its bytes back, so that others can be served meanwhile.
void Arbiter::GiveUpClaim(action::Why why) {
  const Wish wish = claim_->wish;
  if (wish.kind != Wish::Kind::kLease) return AbandonClaim();
  Session& session = roster_.Touch(wish.id);
  session.record =
      std::make_unique<Handover>(std::move(claim_->record));  // told when it gives the lease back
  claim_.reset();
  DropWish(wish.id, wish.kind);
  SendRevoke(session, why);
}

// ---- Those that do not give what they were asked for

// The time counts from when a session began to wait.
void Arbiter::EndBlocks() {
  if (last_waiting_ == 0 || wishes_.active() == 0) {
    const Roster::ByTime blocking = roster_.counted().blocking;
    for (const auto& [since, id] : blocking) roster_.Touch(id).blocks_since = now_;
  }
  if (config_.longest_block == Duration()) return;
  while (!roster_.counted().blocking.empty()) {
    const auto [since, id] = *roster_.counted().blocking.begin();
    if (now_ < since + config_.longest_block) break;
    roster_.Touch(id).blocks_since = now_;
    actions_.emplace_back(action::Overdue{id});
  }
}

// ---- What holders and the caller must know

// Looks only at sessions that may have changed: those of this event; all holders, if the first
// session began to wait or the last one stopped; and if few wait, those that may be all of them.
void Arbiter::UpdateContended() {
  constexpr size_t kOwn = std::size(Wish::kKinds);  // at most, of one session
  const size_t waiting = wishes_.active();
  const size_t before = std::exchange(last_waiting_, waiting);
  told_.clear();
  if ((waiting == 0) != (before == 0) || policy_->pacing() != nullptr) {
    const Roster::Ids& holders = roster_.counted().holders;
    told_.assign(holders.begin(), holders.end());
  } else if (waiting != before && std::min(waiting, before) <= kOwn) {
    for (const Wish& wish : wishes_.growing()) told_.push_back(wish.id);
    if (claim_.has_value()) told_.push_back(claim_->wish.id);
  }
  for (const Session* session : roster_.touched()) told_.push_back(session->id);
  std::sort(told_.begin(), told_.end());
  for (const SessionId id : told_) TellContended(id);
}

void Arbiter::TellContended(SessionId id) {
  const bool contended = IsContended(roster_.at(id)), watched = IsWatched(roster_.at(id));
  if (contended == roster_.at(id).contended && watched == roster_.at(id).watched) return;
  Session& session = roster_.Touch(id);
  session.contended = contended;
  session.watched = watched;
  actions_.emplace_back(action::SetContended{id, contended, watched});
}

bool Arbiter::IsWatched(const Session& session) const {
  const Pacing* const pacing = policy_->pacing();
  return session.holds() && pacing != nullptr && pacing->Watches(session);
}

// Whether other sessions wait for what a holder has, or an order suspends it: it must not fill its
// queue anew meanwhile.
bool Arbiter::IsContended(const Session& session) const {
  if (!session.holds()) return false;
  if (session.suspended) return true;
  if (const Pacing* const pacing = policy_->pacing(); pacing != nullptr) {
    return pacing->IsContended(session);
  }
  // What it wants beside its lease counts, too: it may have credit to spare.
  const size_t own = (session.wants_lease ? 1 : 0) + (session.wants_growth ? 1 : 0);
  return wishes_.active() > own;
}

void Arbiter::WakeBy(Instant instant) {
  wake_ = std::min(wake_.value_or(instant), instant);
}

void Arbiter::SetWake() {
  const Roster::ByTime& expected = roster_.counted().expected;
  if (!expected.empty()) WakeBy(expected.begin()->first);
  const Roster::ByTime& unused = roster_.counted().unused;
  if (config_.host != nullptr && !unused.empty()) {
    WakeBy(unused.begin()->first + config_.unused_promise);
  }
  if (!roster_.counted().wait_for_promise.empty()) WakeBy(now_ + kPromisePause);
  const Roster::ByTime& blocking = roster_.counted().blocking;
  if (config_.longest_block > Duration() && !blocking.empty() && wishes_.active() > 0) {
    WakeBy(blocking.begin()->first + config_.longest_block);
  }
  if (const Pacing* const pacing = policy_->pacing(); pacing != nullptr) {
    WakeBy(pacing->ChangesAt());
  }
  if (wake_.value_or(kNever) != kNever) actions_.emplace_back(action::WakeAt{*wake_});
}

}  // namespace tandem::core
