// Leases that go to another GPU, with the programs that use them.
//
// An order is asked again until no process of the lease is elsewhere. Each process, suspended and
// with nothing on its card that can be swapped, is told to move (wire::Move). What it cannot swap,
// its contexts above all, needs room on the other GPU at once; so that room is kept for it first,
// as if a program outside Tandem had it. It is the process's when it registers there.
//
// Meanwhile the lease is on both GPUs. A daemon that takes over knows of no move under way: it is
// ordered again.
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "src/base/json.h"
#include "src/service/records.h"

namespace tandem::service {
namespace {

constexpr Duration kMovePatience = Seconds(30);  // for room, and then for the process

std::string NameOfGpu(int index) {
  return "gpu" + std::to_string(index);
}

}  // namespace

void Service::MoveLease(Connection& from, const wire::Control& m) {
  const auto refuse = [&](wire::RefusalCode code, const std::string& reason) {
    Refuse(from.id, code, reason, false);
  };
  if (!MayRule(from)) {
    return refuse(wire::RefusalCode::kNotYours,
                  "only root or the daemon's owner can move leases to another GPU");
  }
  const Lease* const lease = leases_.OfJob(m.target);
  int index = -1;
  const char* const end = m.value.data() + m.value.size();
  if (std::from_chars(m.value.data(), end, index).ptr != end || lease == nullptr) {
    return refuse(wire::RefusalCode::kUnknownTarget,
                  lease == nullptr ? "job " + Printable(m.target) + " has no lease"
                                   : "\"" + Printable(m.value) + "\" is no number of a GPU");
  }
  std::vector<Seat*> elsewhere = SeatsOf(RunKey{lease->terms.uid, lease->token});
  std::erase_if(elsewhere, [&](const Seat* seat) { return seat->gpu->info.index == index; });
  std::string why = WhyNotMoved(*lease, elsewhere);
  if (!why.empty()) return refuse(wire::RefusalCode::kUnknownTarget, why);
  std::vector<int> gpus = {index};
  for (const Seat* seat : elsewhere) gpus.push_back(seat->gpu->info.index);
  std::sort(gpus.begin(), gpus.end());
  gpus.erase(std::unique(gpus.begin(), gpus.end()), gpus.end());
  if (const Status moved = leases_.Move(m.target, gpus, SharedBytes()); !moved.ok()) {
    return refuse(wire::RefusalCode::kUnknownTarget, Printable(moved.error().message));
  }
  nlohmann::json answer = LeaseJson(*lease);
  for (const auto& gpu : gpus_) {
    if (gpu->info.index != index) continue;
    for (Seat* seat : elsewhere) {
      GoOnMoving(*seat, *gpu);
      answer["moving"].push_back(seat->client.pid);
    }
  }
  out_.push_back(Outgoing{from.id, wire::Answer{JsonText(answer)}, {}, false});
}

// Why processes of a lease cannot leave their GPUs, or one of them has not; empty: nothing is
// known against it.
std::string Service::WhyNotMoved(const Lease& lease, const std::vector<Seat*>& elsewhere) {
  for (Seat* seat : elsewhere) {
    std::string why = "process " + std::to_string(seat->client.pid);
    const std::string gpu = NameOfGpu(seat->gpu->info.index);
    if (!lease.suspended.has_value()) {
      return why.append(" uses ").append(gpu).append(": take that away with `tandem detach` first");
    }
    const auto sessions = std::count_if(sessions_.begin(), sessions_.end(), [&](const auto& each) {
      return each.second->client.pid == seat->client.pid;
    });
    if (sessions > 1) return why.append(" uses several GPUs, and cannot move to another one");
    if (seat->stays.empty()) continue;
    why.append(" stays on ").append(gpu).append(": ").append(seat->stays);
    for (Seat* each : elsewhere) each->stays.clear();  // the next order is a new one
    KeepToItsGpus(lease);
    return why;
  }
  return {};
}

// After a move that has failed.
void Service::KeepToItsGpus(const Lease& lease) {
  std::vector<int> gpus;
  for (const Seat* seat : SeatsOf(RunKey{lease.terms.uid, lease.token})) {
    gpus.push_back(seat->gpu->info.index);
  }
  std::sort(gpus.begin(), gpus.end());
  gpus.erase(std::unique(gpus.begin(), gpus.end()), gpus.end());
  if (gpus.empty()) return;
  // It has had all of them, so that only a full disk can be in the way.
  [[maybe_unused]] const Status kept = leases_.Move(lease.terms.job, gpus, SharedBytes());
}

void Service::GoOnMoving(Seat& seat, Gpu& to) {
  const core::Session& session = seat.gpu->arbiter.sessions().at(seat.id);
  if (seat.move.has_value() && seat.move->to != &to && !seat.move->told) EndMove(seat);
  if (!seat.move.has_value()) {
    const Bytes room = session.fixed + Bytes(session.contexts * to.info.context.count);
    seat.move = Seat::Move{&to, room, false, now_ + kMovePatience};
    moves_at_ = std::min(moves_at_.value_or(seat.move->until), seat.move->until);
    to.awaited += room;
    Feed(to, core::event::BudgetSet{to.budget()});
  }
  const bool left = session.charge + session.excess == Bytes();
  const bool has_room = to.arbiter.budget().total() <= to.budget();
  if (seat.move->told || !left || !has_room || seat.connection == 0) return;
  seat.move->told = true;
  seat.move->until = now_ + kMovePatience;
  SendTo(seat.id, wire::Move{to.info.uuid});
}

// It has moved, or will not.
void Service::EndMove(Seat& seat) {
  if (!seat.move.has_value()) return;
  Gpu& to = *seat.move->to;
  to.awaited -= seat.move->room;
  seat.move.reset();
  Feed(to, core::event::BudgetSet{to.budget()});
}

void Service::Handle(Connection& from, const wire::NotMoved& m) {
  if (from.seat == nullptr || !from.seat->move.has_value()) return;
  from.seat->stays = Printable(m.reason);
  EndMove(*from.seat);
}

std::string Service::WhyLate(const Seat& seat) {
  const core::Session& session = seat.gpu->arbiter.sessions().at(seat.id);
  if (seat.move->told) return "it does not answer. Perhaps it was started with an older Tandem";
  if (session.charge + session.excess > Bytes()) return "its memory has not left that GPU";
  return NameOfGpu(seat.move->to->info.index) + " has no room for the " +
         FormatBytes(seat.move->room) + " of it that cannot be swapped";
}

void Service::EndLateMoves() {
  moves_at_.reset();
  for (auto& [id, seat] : sessions_) {
    if (!seat->move.has_value()) continue;
    if (seat->move->until > now_) {
      moves_at_ = std::min(moves_at_.value_or(seat->move->until), seat->move->until);
      continue;
    }
    seat->stays = WhyLate(*seat);
    EndMove(*seat);
  }
}

// The session that a process of a lease, which may have ended meanwhile, had where it comes from;
// or null.
Service::Seat* Service::LeftBy(const Connection& from, const wire::Register& m) {
  Gpu* const gpu = m.moved_from.empty() ? nullptr : FindGpu(m.moved_from);
  Seat* const seat = gpu == nullptr ? nullptr : FindSeat(from.client, *gpu);
  if (seat == nullptr || !seat->run.has_value()) return nullptr;
  const Run& run = runs_.at(*seat->run);
  const bool of_lease = run.leased || run.ended;
  return of_lease && (m.run == 0 || seat->run->second == m.run) ? seat : nullptr;
}

// A process that was stopped arrives where its lease has been given up.
void Service::LetLeaseFollow(const Seat& seat) {
  const Lease* const lease = leases_.OfToken(seat.run->first, seat.run->second);
  if (lease == nullptr) return;  // it has ended; its programs run on
  std::vector<int> gpus = lease->terms.gpus;
  const int here = seat.gpu->info.index;
  if (std::find(gpus.begin(), gpus.end(), here) != gpus.end()) return;
  gpus.push_back(here);
  // Without room for what it is guaranteed, the process is there nevertheless.
  [[maybe_unused]] const Status kept = leases_.Move(lease->terms.job, gpus, SharedBytes());
}

// `left` is gone afterwards, and what it had is the new session's.
void Service::TakeOver(Seat& left, Seat& seat, core::event::SessionAdded* added) {
  seat.limited = left.limited;
  Gpu& from = *left.gpu;
  if (left.move.has_value() && left.move->to == seat.gpu) {
    seat.gpu->awaited -= left.move->room;
    left.move.reset();
    added->budget = seat.gpu->budget();
  }
  NoteOf(left.client.uid, Describe(left) + " moves to " + NameOfGpu(seat.gpu->info.index));
  const core::SessionId id = left.id;
  GiveUpSeat(left);
  Feed(from, core::event::SessionGone{id});
}

}  // namespace tandem::service
