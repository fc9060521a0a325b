#include "src/core/planner.h"

#include <algorithm>
#include <tuple>

#include "src/core/check.h"

namespace tandem::core {
namespace {

// A session that lost its lease for lack of room comes back beside others only where this share of
// the budget stays free, or after a quantum. Otherwise sessions that barely fit would leave and
// return with every small allocation.
constexpr uint64_t kRejoinMargin = 32;
// Where turns have a fixed length: bytes come in and go out again within at least this many
// switches.
constexpr int64_t kLeastMultiple = 2;

}  // namespace

bool Planner::MayBeServed(const Wish& wish) const {
  const Session& session = roster_.at(wish.id);
  if (session.stuck) return false;
  switch (wish.kind) {
    case Wish::Kind::kLease:
      return session.phase == Phase::kAway && (session.rooted || !session.evicting()) &&
             !IsBarred(session);
    case Wish::Kind::kGrowth:
      return session.holds() && session.phase != Phase::kRevoking;
    case Wish::Kind::kContext:
    case Wish::Kind::kFixed:
      return true;
  }
  return false;
}

// The session yields at `cap`, and its memory on the card then leaves for those ahead. So it needs
// as long a turn as any session whose bytes move.
bool Planner::MaySlipIn(const Wish& wish, std::optional<Instant> cap, Instant now) const {
  if (!cap.has_value() || wish.kind != Wish::Kind::kLease) return true;
  return IsWorthMoving(Lacked(wish), *cap - now);
}

bool Planner::IsWorthMoving(Bytes lacked, Duration turn) const {
  if (lacked == Bytes()) return true;
  const int64_t multiple = std::max(config_.turns.cost_multiple, kLeastMultiple);
  return turn >= cost_.Estimate(Moves::BothWays(lacked)) * multiple;
}

bool Planner::OnlyKeptMemorySlipsIn(Instant cap, Instant now) const {
  if (!LeasesOnly()) return false;
  const auto& asked = roster_.counted().asked;
  const bool only = asked.empty() || !IsWorthMoving(asked.begin()->first, cap - now);
#if !defined(NDEBUG)
  for (const auto& [id, session] : roster_.all()) {
    const bool lacks_all = session.asks() && session.charge == Bytes();
    TANDEM_CHECK(!only || !lacks_all || !IsWorthMoving(session.need, cap - now));
  }
#endif
  return only;
}

bool Planner::LeasesOnly() const {
  return wishes_.lasting() == 0 && wishes_.growing().empty();
}

bool Planner::NobodyFits(const Ahead& ahead) const {
  const Roster::Counted& all = roster_.counted();
  if (!LeasesOnly() || all.sums.immovable > Bytes()) return false;  // some need less than they say
  const Bytes taken = budget_.fixed() + all.sums.held + ahead.kept;
  return all.asked.empty() || all.asked.begin()->first > SaturatingSubtract(budget_.total(), taken);
}

void Ahead::Add(const Session& session) {
  if (Keeps(session)) return;
  ids.push_back(session.id);
  if (!session.holds_well() && !session.immovable()) kept += session.charge;
}

bool Ahead::Keeps(const Session& session) const {
  const bool wishes_more = !session.contexts_wanted.empty() || !session.fixed_wanted.empty();
  if (!wishes_more || session.holds_well() || session.immovable()) return false;
  return std::find(ids.begin(), ids.end(), session.id) != ids.end();
}

Bytes Planner::Needed(const Wish& wish) const {
  const Session& session = roster_.at(wish.id);
  if (wish.kind == Wish::Kind::kFixed) return session.fixed_wanted.front().bytes;
  if (wish.kind == Wish::Kind::kContext) {
    return contexts_ < config_.reserved ? Bytes() : config_.context;
  }
  return session.need;
}

Bytes Planner::Lacked(const Wish& wish) const {
  return SaturatingSubtract(Needed(wish), wish.lasting() ? Bytes() : roster_.at(wish.id).charge);
}

bool Planner::MustBeAlone(const Wish& wish) const {
  return !policy_->together() && wish.kind == Wish::Kind::kLease;
}

bool Planner::HasRoom(const Wish& wish, Bytes room) const {
  if (Needed(wish) > room) return false;
  const uint32_t itself = roster_.at(wish.id).holds_well() ? 1 : 0;
  return !MustBeAlone(wish) || roster_.sums().holders == itself;
}

Bytes Planner::Room(const Wish& wish, const Ahead& ahead) const {
  const Sums& sums = roster_.sums();
  Bytes taken = budget_.fixed() + sums.held + sums.immovable + ahead.kept;
  if (!wish.lasting()) {
    const Session& session = roster_.at(wish.id);
    if (session.holds_well()) taken -= std::max(session.charge, session.need);
    if (session.immovable()) taken -= session.charge;
    if (ahead.kept > Bytes() && ahead.Keeps(session)) taken -= session.charge;
  }
  return SaturatingSubtract(budget_.total(), taken);
}

// REQUIRES: the wish fits into `room`.
Instant Planner::MayJoinAt(const Wish& wish, Bytes room, Instant now) const {
  const Session& session = roster_.at(wish.id);
  const bool alone = roster_.sums().holders == 0;
  const Bytes margin = std::max(config_.chunk, Bytes(budget_.total().count / kRejoinMargin));
  const bool comes_back = wish.kind == Wish::Kind::kLease && session.left_at.has_value();
  if (!comes_back || alone || Needed(wish) + margin <= room) return now;
  return *session.left_at + QuantumFor(wish, nullptr);
}

bool Planner::WouldBar(const Wish& lasting) const {
  const Bytes needed = Needed(lasting);
  return needed > Bytes() && roster_.LargestHeld() + budget_.fixed() + needed > budget_.total();
}

Plan Planner::MakePlan(const Wish& wish, const Ahead& ahead, Instant now) const {
  if (wish.lasting() && WouldBar(wish)) return Plan{};
  const Bytes room = Room(wish, ahead);
  if (HasRoom(wish, room)) {
    const Instant at = MayJoinAt(wish, room, now);
    return Plan{at <= now ? Plan::When::kNow : Plan::When::kLater, at, {}};
  }
  return ahead.ids.empty() ? PlanRevocations(wish, room, now) : Plan{};
}

// Revokes the holders that yield the soonest, and no more of them than the wish needs.
Plan Planner::PlanRevocations(const Wish& wish, Bytes room, Instant now) const {
  const Bytes needed = Needed(wish);
  const bool all = MustBeAlone(wish);
  struct Candidate {
    Yield yield;
    SessionId id;
    Bytes bytes;
  };
  std::vector<Candidate> candidates;
  candidates.reserve(roster_.counted().holders.size());
  Bytes leaving;  // with leases that are being revoked
  for (const SessionId id : roster_.counted().holders) {
    const Session& session = roster_.at(id);
    if (session.stuck || (id == wish.id && !wish.lasting())) continue;
    const Bytes bytes = std::max(session.charge, session.need);
    if (session.phase == Phase::kRevoking) {
      leaving += bytes;
    } else {
      candidates.push_back({YieldsAt(session, wish, now), id, bytes});
    }
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.yield.at, a.id) < std::tie(b.yield.at, b.id);
  });
  Plan plan{Plan::When::kNow, now, {}};
  std::vector<Candidate> chosen;
  room += leaving;
  for (const Candidate& candidate : candidates) {
    if (needed <= room && !all) break;
    room += candidate.bytes;
    chosen.push_back(candidate);
  }
  if (needed > room) return Plan{};
  // The last candidate may free enough for earlier ones to stay.
  for (const Candidate& candidate : chosen) {
    if (needed <= room - candidate.bytes && !all) {
      room -= candidate.bytes;
    } else {
      plan.revoke.push_back({candidate.id, candidate.yield.why});
      plan.at = std::max(plan.at, candidate.yield.at);
    }
  }
  if (plan.at > now) plan.when = Plan::When::kLater;
  return plan;
}

// A holder whose memory is being restored keeps the lease as long as bytes arrive. Otherwise a
// switch that takes longer than a turn would be given up each time, and nothing would ever run.
Planner::Yield Planner::YieldsAt(const Session& holder, const Wish& to, Instant now) const {
  const Bytes free = budget_.free();
  const Duration whole = cost_.Estimate(MovesFor(to, &holder, Bytes()));
  const Contest contest{holder,
                        roster_.at(to.id),
                        to,
                        free == Bytes() ? whole : cost_.Estimate(MovesFor(to, &holder, free)),
                        config_.turns.Quantum(whole),
                        Lacked(to) > free,
                        now};
  const bool runs = holder.phase == Phase::kRunning;
  Yield yield{runs ? policy_->TurnEnds(contest) : StallsAt(holder),
              runs ? action::Why::kTurnEnded : action::Why::kHeldUp};
  const auto or_at = [&yield](Instant at, action::Why why) {
    if (at < yield.at) yield = {at, why};
  };
  if (holder.cap.has_value() && runs) or_at(*holder.cap, action::Why::kMadeWay);
  if (holder.idle && runs) {
    or_at(holder.idle_since + policy_->MayPause(contest), action::Why::kPaused);
  }
  if (runs) or_at(policy_->InterruptsAt(contest), action::Why::kInterrupted);
  if (policy_->Outranks(contest)) or_at(now, action::Why::kInterrupted);
  if (holder.wants_growth) or_at(now, action::Why::kHeldUp);
  yield.at = std::max(yield.at, holder.not_before);
  return yield;
}

// A session that reports no arrivals before it runs has time for its whole need.
Instant Planner::StallsAt(const Session& holder) const {
  const Duration rest = holder.tells_arrivals
                            ? cost_.MostForChunk(Way::kIn)
                            : std::max(cost_.Estimate(Moves::BothWays(holder.need)) * 4,
                                       cost_.MostForChunk(Way::kIn));
  return holder.progressed_at + config_.silence + rest;
}

Bytes Planner::FilePart(SessionId id, Bytes bytes) const {
  if (config_.host == nullptr) return Bytes();
  const HostPlace place = config_.host->PlaceOf(config_.gpu, id);
  return std::min(SaturatingSubtract(bytes, place.memory), place.spilled);
}

// Memory that was never written is not copied in.
Moves Planner::MovesFor(const Wish& wish, const Session* from, Bytes free) const {
  Moves moves;
  const Bytes lacked = Lacked(wish);
  const Bytes gone = SaturatingSubtract(lacked, free);
  const double modified =
      from != nullptr && from->modified.known() ? std::min(from->modified.value(), 1.0) : 1.0;
  const Bytes copied(static_cast<uint64_t>(modified * static_cast<double>(gone.count)));
  const Bytes to_file = from != nullptr ? FilePart(from->id, copied) : Bytes();
  moves.at(Way::kOut, Place::kCard) = SaturatingSubtract(gone, copied);
  moves.at(Way::kOut, Place::kMemory) = SaturatingSubtract(copied, to_file);
  moves.at(Way::kOut, Place::kFile) = to_file;
  if (wish.lasting()) return moves;
  const Bytes back = std::min(lacked, roster_.at(wish.id).on_host);
  const Bytes from_file = FilePart(wish.id, back);
  moves.at(Way::kIn, Place::kCard) = lacked - back;
  moves.at(Way::kIn, Place::kMemory) = back - from_file;
  moves.at(Way::kIn, Place::kFile) = from_file;
  return moves;
}

// Others may take the free memory meanwhile, so it does not shorten a turn.
Duration Planner::QuantumFor(const Wish& wish, const Session* from) const {
  return config_.turns.Quantum(cost_.Estimate(MovesFor(wish, from, Bytes())));
}

bool Planner::IsBarred(const Session& session) const {
  const Pacing* const pacing = policy_->pacing();
  return pacing != nullptr && pacing->Bars(session);
}

}  // namespace tandem::core
