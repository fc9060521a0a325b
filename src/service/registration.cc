// Programs that register: new ones, and those that were there before a restart.
#include <algorithm>

#include "src/service/records.h"

namespace tandem::service {
namespace {

// What a session brings from before a restart, as far as it can be true.
core::event::SessionAdded ClaimsOf(const wire::Register& m, const GpuInfo& gpu) {
  core::event::SessionAdded claims;
  claims.oversubscribes = m.oversubscribes == wire::Register::kDoes;
  const uint64_t cards = claims.oversubscribes ? kMostCards : 1;
  claims.allocated = std::min(Bytes(m.allocated_bytes), Bytes(gpu.card.count * cards));
  claims.resident = std::min(Bytes(m.resident_bytes), gpu.card);
  claims.fixed = std::min(Bytes(m.fixed_bytes), gpu.card);
  claims.contexts = std::min(m.contexts, kMostContexts);
  return claims;
}

}  // namespace

void Service::Handle(Connection& from, const wire::Register& m) {
  wire::Register with_run = m;
  with_run.run = TokenOf(from, m);
  Enrol(from, with_run);
}

// A program in a container does not know the token of the container's lease.
uint64_t Service::TokenOf(const Connection& from, const wire::Register& m) {
  if (m.run != 0) return m.run;
  if (leases_.HasCgroups() && config_.cgroups_of) {
    const auto cgroups = config_.cgroups_of(from.client.pid);
    const Lease* const lease = leases_.OfCgroups(from.client.uid, cgroups);
    if (lease != nullptr) return lease->token;
  }
  const Seat* const left = LeftBy(from, m);
  return left == nullptr ? 0 : left->run->second;
}

void Service::Enrol(Connection& from, const wire::Register& m) {
  if (from.role != Connection::Role::kNew) {
    return Refuse(from.id, wire::RefusalCode::kProtocol, "Register must come first and once", true);
  }
  Gpu* const gpu = FindGpu(m.device);
  if (gpu == nullptr) {
    return Refuse(from.id, wire::RefusalCode::kUnknownDevice,
                  "this daemon does not serve a GPU " + Printable(m.device), true);
  }
  Seat* const old = FindSeat(from.client, *gpu);
  Seat* const left = old == nullptr ? LeftBy(from, m) : nullptr;
  const Seat* const before = old != nullptr ? old : left;
  if (before == nullptr && SessionsOf(from.client.uid) >= kMaxSessionsPerUser) {
    return Refuse(from.id, wire::RefusalCode::kTooMany,
                  "user " + std::to_string(from.client.uid) + " has " +
                      std::to_string(kMaxSessionsPerUser) + " sessions already",
                  true);
  }
  if (before == nullptr && RefuseWithoutLease(from, *gpu, m)) return;
  if (AwaitSpillFile(from, *gpu, m)) return;
  Result<std::unique_ptr<SessionPages>> pages = pages_->Make();
  if (!pages.ok()) {
    return Refuse(from.id, wire::RefusalCode::kTooMany, pages.error().message, true);
  }
  std::unique_ptr<Seat> seat = MakeSeat(from, m, gpu, old);
  seat->pages = std::move(*pages);
  if (old == nullptr && !AddSaved(*seat)) {
    return Refuse(from.id, wire::RefusalCode::kTooMany, "the daemon has no room for more sessions",
                  true);
  }
  core::event::SessionAdded added;
  // No other session can have anything yet, whatever it claims.
  const bool unknown_from_before =
      before == nullptr && from.client.predates_daemon && !KnowsAllFromBefore();
  if (before != nullptr || unknown_from_before) added = ClaimsOf(m, gpu->info);
  if (unknown_from_before) Believe(*gpu, &added);
  if (left != nullptr) added.oversubscribes = DoesOversubscribe(*left) && added.oversubscribes;
  if (before != nullptr && !before->gpu->arbiter.MayReturn(before->id, &added)) {
    return Refuse(from.id, wire::RefusalCode::kTooMany,
                  "cannot re-register: while the daemon was down it allocated more than its run, "
                  "or its user, may have",
                  true);
  }
  added.id = seat->id;
  added.tenant = TenantOf(from.client);
  added.spills = from.spill_file.has_value() && *from.spill_file;
  JoinRun(from, m, old, *seat, added);
  const bool suspended =
      left != nullptr ? runs_.at(*seat->run).suspended : StartsSuspended(m, old, *seat, added);
  const core::Share share = FirstShare(old, *seat);
  if (old != nullptr) {
    Replace(*old, *seat, &added);
  } else if (left != nullptr) {
    TakeOver(*left, *seat, &added);
  } else if (unknown_from_before) {
    CountAsNotForeign(*gpu, &added);
  }
  from.role = Connection::Role::kSession;
  from.seat = seat.get();
  sessions_[added.id] = std::move(seat);
  if (left != nullptr) LetLeaseFollow(*from.seat);
  RecordIdentity(*from.seat);
  ExpectUsage();
  SendRegistered(from, *gpu, added);  // before all that the arbiter has to say to the session
  Feed(*gpu, added);
  if (share != core::Share()) Feed(*gpu, core::event::ShareSet{KeyOf(*from.seat), share});
  if (suspended) StartSuspended(*from.seat);
  NoteOf(from.client.uid,
         Describe(*from.seat) + (old != nullptr ? " has registered again" : " has started"));
}

// `old`: the session that the process has there already, or null.
std::unique_ptr<Service::Seat> Service::MakeSeat(const Connection& from, const wire::Register& m,
                                                 Gpu* gpu, const Seat* old) {
  auto seat = std::make_unique<Seat>();
  seat->id = old != nullptr ? old->id : NextSession();
  seat->gpu = gpu;
  seat->connection = from.id;
  seat->client = from.client;
  seat->program = Printable(m.program);
  seat->started = old != nullptr ? old->started : now_;
  seat->saved = old != nullptr ? old->saved : nullptr;
  return seat;
}

bool Service::DoesOversubscribe(const Seat& seat) {
  return seat.gpu->arbiter.sessions().at(seat.id).oversubscribes;
}

void Service::StartSuspended(const Seat& seat) {
  const bool refuses = seat.run.has_value() && runs_.at(*seat.run).refuses;
  Feed(*seat.gpu, core::event::Suspended{seat.id, true, refuses});
}

// What the session that registers again had stays its own. `old` is gone afterwards.
void Service::Replace(Seat& old, Seat& seat, core::event::SessionAdded* added) {
  added->replaces = old.id;
  seat.suspended_by = old.suspended_by;
  seat.limited = old.limited;
  seat.spill_quota = old.spill_quota;
  old.saved = nullptr;  // it is the new one's
  GiveUpSeat(old);
}

void Service::SendRegistered(Connection& to, const Gpu& gpu,
                             const core::event::SessionAdded& added) {
  const Bytes budget = std::max(BudgetShown(gpu), added.budget.value_or(Bytes()));
  const Bytes limit = added.oversubscribes ? added.limit : std::min(added.limit, budget);
  out_.push_back(Outgoing{to.id,
                          wire::Registered{gpu.info.card.count, limit.count, gpu.info.chunk.count},
                          to.seat->pages->fds(), false,
                          std::exchange(to.spill_file, std::nullopt).value_or(UniqueFd())});
}

void Service::GiveUpSeat(Seat& seat) {
  if (seat.connection != 0) {
    connections_.at(seat.connection)->seat = nullptr;
    out_.push_back(Outgoing{seat.connection, std::nullopt, {}, true});
  }
  Remove(seat.id, false);
}

}  // namespace tandem::service
