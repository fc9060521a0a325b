// Arbiter: decides for one GPU who holds a lease and whose bytes are on the card.
//
// A pure state machine: what happened and when goes in, what to do comes out, in order. It has no
// clock, thread, socket or file, so a recorded trace replays exactly.
//
// Everything that a session waits for is a Wish (wish.h). One wish at a time is being fulfilled,
// the Claim: first enough holders are revoked that the rest and the claimant fit together; then the
// memory of sessions without a lease is evicted, as far as the claimant lacks it, and every byte
// that comes free goes to the claimant until it has all it needs. As only one session at a time is
// short of bytes it was promised, two half-restored ones never wait for each other.
//
// A suspended session wishes for nothing. The arbiter revokes and evicts it even if no session
// waits; its requests wait until it is resumed.
//
// Threading: none; the caller serialises.
// Invariants
// 1. Σ charges ≤ budget, but for what is lent of the spare (budget.h aborts otherwise).
// 2. Evict goes only to sessions without a lease; a session that is swapping out gets no lease,
//    unless it says that it cannot.
// 3. At most one claim; a session that is short of credit under a lease is the claimant or waits.
// 4. Epochs are never used twice.
// 5. Every session's allocation ≤ budget − what is charged that cannot be swapped: alone it can
//    always run. So can one that oversubscribes, whatever it has allocated and however little of
//    that is on the card: its need is cut to what there is. Two kinds of session may lack this
//    room: one that comes back after a restart, and one that was suspended. Others get no more of
//    what cannot be swapped until such a session has the room again, unless it is suspended
//    (docs/decisions/0022).
// 6. A session that is held up in its wish for what cannot be swapped is refused it after
//    config.fixed_wait.
// 7. Each grant leads to work: a lease that is being brought in is only revoked where its bytes do
//    not come, on an order, or for a wish that outranks turns; one that runs keeps the card for its
//    quantum, unless it pauses, lacks memory, slipped in, or is interrupted by its policy's rule.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/core/arbiter_config.h"
#include "src/core/budget.h"
#include "src/core/host_limits.h"
#include "src/core/limits.h"
#include "src/core/planner.h"
#include "src/core/policy.h"
#include "src/core/roster.h"
#include "src/core/running_time.h"
#include "src/core/turns.h"
#include "src/core/types.h"
#include "src/core/wish_queue.h"

namespace tandem::core {

class Arbiter {
 public:
  explicit Arbiter(const ArbiterConfig& config);
  Arbiter(const Arbiter&) = delete;
  Arbiter& operator=(const Arbiter&) = delete;

  std::vector<Action> On(const Event& event, Instant now);

  // For listings and for the pages of sessions.
  const ArbiterConfig& config() const { return config_; }  // `policy` is the one that counts now
  const Budget& budget() const { return budget_; }
  const RunLimits& limits() const { return limits_; }
  const Roster& roster() const { return roster_; }
  // What is charged for a session; nothing for one that is gone.
  Bytes ChargeOf(SessionId id) const;
  // Of a session's run: never above the budget, which may rise, but where it oversubscribes.
  Bytes LimitOf(SessionId id) const {
    const Bytes limit = limits_.limit(id);
    return roster_.at(id).oversubscribes ? limit : std::min(limit, budget_.total());
  }
  // The most that a session could have on the card if it were alone.
  Bytes MostResident() const { return budget_.total() - budget_.fixed(); }
  // The most that this one, which oversubscribes, will get there beside what others cannot give up.
  Bytes MostResident(const Session& session) const;
  // What a session needs is cut to this: nothing that it has allocated, but where it
  // oversubscribes.
  Bytes MostNeeded(const Session& session) const;
  // Of what is allocated, what the card does not hold.
  Bytes excess() const { return excess_; }
  // The most bytes of a session that are on the host, or will be once it has obeyed.
  Bytes OnHost(const Session& session) const;
  // The most of a session's memory that the host may have to hold at once.
  Bytes HostShare(SessionId id) const { return HostShare(roster_.at(id), excess_); }
  const std::map<SessionId, Session>& sessions() const { return roster_.all(); }
  // Whether the session, whose connection broke, may come back with what is claimed for it. What it
  // cannot have got without us is taken off the claims.
  bool MayReturn(SessionId id, event::SessionAdded* claims) const;
  std::vector<Wish> Waiting() const;  // next first; without those of suspended sessions
  std::optional<SessionId> claimant() const;
  bool taking_turns() const;
  // Whether it gets no lease now, whatever room there is, since others work (Pacing in policy.h).
  bool IsBarred(const Session& session) const { return planner_.IsBarred(session); }
  const Shares& shares() const { return shares_; }
  // Until it may work, where it waits for a lease and turns end; nothing where it cannot be said
  // (arbiter_forecast.cc).
  std::optional<Duration> ExpectedWait(SessionId id, Instant now) const;
  // Whether a thread of its program may be held up: it waits for something, also while it is
  // suspended, or its memory is being brought in.
  bool IsHeldBack(SessionId id) const;
  bool AnyHeldBack() const { return wishes_.size() > 0 || claim_.has_value(); }
  Duration SwitchEstimate() const;  // of the next hand-over, or of a typical one
  Duration Quantum() const;         // before that
  // Any session works (Session::working); any has a lease.
  const RunningTime& busy() const { return busy_; }
  const RunningTime& held() const { return held_; }

 private:
  // Of one kind at once, by one session: a thread of its program waits for each.
  static constexpr size_t kMostWanted = 1024;

  struct Claim {
    Wish wish;
    std::optional<Instant> cap;  // of the lease's protection: a session ahead waits
    bool gathering = false;      // the holders are out of the way; memory is being collected
    Handover record;
  };
  // Events (arbiter.cc). Each says what happened and leaves deciding to Decide.
  void Handle(const event::SessionAdded& e);  // these two: arbiter_members.cc
  void Handle(const event::SessionGone& e);
  void Handle(const event::Reserve& e);
  void Handle(const event::ContextWanted& e);
  void Handle(const event::ContextGone& e);
  void Handle(const event::FixedWanted& e);
  void Handle(const event::FixedGone& e);
  void Handle(const event::Ready& e);
  void Handle(const event::NotReady& e);
  void Handle(const event::Running& e);
  void Handle(const event::Restored& e);
  void Handle(const event::Idle& e);
  void Handle(const event::Active& e);
  void Handle(const event::Released& e);
  void Handle(const event::Busy& e);
  void Handle(const event::Evicted& e);
  void Handle(const event::Suspended& e);
  void Handle(const event::LimitSet& e);
  void Handle(const event::ShareSet& e);
  void Handle(const event::ClassSet& e);
  void Handle(const event::Declared& e);
  void Handle(const event::Leaving& e);
  void Handle(const event::PolicySet& e);
  void Handle(const event::BudgetSet& e);
  void KeepAccounts();
  void Handle(const event::Tick& e);
  Session* FindHolder(SessionId id, Epoch epoch);
  void HeardFrom(Session& session);
  void ExpectToLeave(Session& session, Bytes from);
  void Root(Session& session);
  void SetCharge(Session& session, Bytes charge);
  void SetCredit(Session& session, Bytes credit);
  void AddWish(SessionId id, Wish::Kind kind);
  void DropWish(SessionId id, Wish::Kind kind);
  void EndLease(Session& session);
  void EndIdle(Session& session);
  void ChargeFixed();
  void CutNeeds();
  void FollowBudget();
  void RefuseContexts();
  void RefuseFixed();
  void RefuseFixed(Session& session, size_t which);
  bool IsHeldUp(const Wish& lasting) const;
  bool RefuseHeldUp();
  bool RefuseHeldUpContexts(Session& session);
  bool RefuseHeldUpFixed(Session& session);
  bool IsOverdue(const Wish& lasting, Instant asked_at, std::optional<Instant>* held_up);
  void GrantFixed(Session& session);
  void AnswerContext(Session& session, bool granted);
  Handover* RecordOf(Session& session);
  void Report(Session& session);
  void Tell(Handover record);
  void AbandonClaim();

  // What hand-overs move, and how long that takes (arbiter_moves.cc).
  void NoteLeaving(Session* session, const event::Evicted& e);
  void NoteArrived(Session& session, Bytes copied, Handover* record);
  static void CountOut(Bytes gone, const event::Evicted& e, Moves* moves);
  Moves NextMoves(Bytes free) const;

  // The host's memory (arbiter_host.cc).
  Bytes Excess(Bytes more) const;
  Bytes Cold(const Session& session) const;
  Bytes HostShare(const Session& session, Bytes excess) const;
  HostNeeds NeedsOfHost(Bytes more) const;
  bool HostHasRoom(const Session& session, Bytes more = {});
  void PromiseHost();
  bool FitsHost(const Session& session, Bytes more) const;
  void TakeBackPromises();
  void SetLapsed(Session& session, bool lapsed);
  bool Promise(Session& session);

  // Giving back unasked (arbiter_yield.cc).
  void ClearSuspended();
  void PartHolders();
  void RevokeBarred();
  void EndClaimOf(const Session& session);

  // Deciding (arbiter_decide.cc).
  void Decide();
  bool Choose();
  bool Advance();
  bool Gather();
  void Begin(const Wish& wish, const Plan& plan, std::optional<Instant> cap);
  void SendGrant(Session& session);
  void SendRevoke(Session& session, action::Why why);
  void RaiseCredit(Session& session);
  bool OrderEvictions(Bytes bytes);
  Bytes OrderEviction(SessionId id, Bytes bytes);
  void Fulfil();
  void AnswerContexts(Session& session);
  void AnswerFixed(Session& session);
  void GiveUpClaim(action::Why why);
  Bytes Coming() const;
  void EndBlocks();
  void UpdateContended();
  void TellContended(SessionId id);
  bool IsContended(const Session& session) const;
  bool IsWatched(const Session& session) const;
  void KeepTimes();
  void SetWake();
  void WakeBy(Instant instant);

  ArbiterConfig config_;
  Budget budget_;
  RunLimits limits_;
  SwitchCost cost_;
  WishQueue wishes_;
  Shares shares_;
  std::unique_ptr<Policy> policy_;
  Roster roster_;
  std::optional<Claim> claim_;
  Bytes wanted_total_;  // of the budget
  Epoch last_epoch_ = 0;
  uint64_t last_ticket_ = 0;
  uint32_t contexts_ = 0;  // on the card, of all sessions
  Bytes fixed_;            // as Session::fixed, of all sessions
  Bytes lapsed_;           // allocated by sessions that are Session::lapsed
  Bytes excess_;           // of what is allocated, over what the card holds of it
  Instant chunk_left_by_;  // of any session, and the next one should have by then
  Moves last_moves_;       // of the latest hand-over that moved bytes
  RunningTime busy_, held_;
  size_t last_waiting_ = 0;  // wishes, when sessions were last told whether others wait

  Planner planner_{{config_, budget_, cost_, wishes_, roster_, policy_, contexts_}};

  // Of the call of On that is being served.
  Instant now_;
  std::vector<Action> actions_;
  std::vector<SessionId> told_;  // by UpdateContended; kept for its room
  std::optional<Instant> wake_;
};

}  // namespace tandem::core
