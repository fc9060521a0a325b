// What the service does about runs: opens them, keeps their limits, lets them go on after a
// restart.
#include <algorithm>
#include <utility>

#include "src/core/class_names.h"
#include "src/service/records.h"
#include "src/wire/open_runs.h"

namespace tandem::service {
namespace {

// `hint`: another way to have more; may be empty.
std::string TooLarge(Bytes limit, Bytes most, bool oversubscribes, const std::string& hint) {
  const std::string wish = "a limit of " + FormatBytes(limit) + " is more than " +
                           (oversubscribes ? "a run may have" : "programs can share") + ", " +
                           FormatBytes(most);
  const uint64_t whole = most.count / MiB(1).count;
  if (whole == 0) return wish + "; other programs hold the card: wait until they end";
  return wish + ". Use " + std::to_string(whole) + "M or less" + (oversubscribes ? "" : hint);
}

}  // namespace

// An unknown token is from an earlier daemon: its sessions still belong together.
Service::Run& Service::FindRun(unsigned uid, uint64_t token) {
  Run& run = runs_[RunKey{uid, token}];
  if (run.id.value == 0) run.id = core::RunId{++last_run_};
  return run;
}

void Service::Handle(Connection& from, const wire::RunBegin& m) {
  if (from.role == Connection::Role::kSession || from.run.has_value()) {
    return Refuse(from.id, wire::RefusalCode::kProtocol, "RunBegin is out of place here", true);
  }
  if (leases_.OfToken(from.client.uid, m.run) != nullptr) {
    return Refuse(from.id, wire::RefusalCode::kProtocol, "a lease is not a run to be opened", true);
  }
  from.role = Connection::Role::kPeople;
  // A run from before a restart was within the budget; its sessions may not all have come back.
  const bool oversubscribes = m.oversubscribes != 0;
  if (m.run == 0 &&
      RefuseTooLarge(from, Bytes(m.limit_bytes), oversubscribes, kOversubscribeHint)) {
    return;
  }
  const std::optional<core::Class> of_class = ClassOf(from, m);
  if (!of_class.has_value()) return;
  uint64_t token = m.run;
  while (token == 0) {
    token = wire::RunToken(config_.random_token());
    if (runs_.count(RunKey{from.client.uid, token}) != 0) token = 0;
  }
  from.run = RunKey{from.client.uid, token};
  Run& run = FindRun(from.client.uid, token);
  if (run.owner != 0)
    connections_.at(run.owner)->run.reset();  // the same `tandem run`, from before
  run.name = Printable(m.name.empty() ? m.program : m.name);
  run.owner = from.id;
  run.program = Printable(m.program);
  if (run.started == Instant()) run.started = run.unused_since = now_;
  run.oversubscribes = run.oversubscribes || oversubscribes;
  run.of_class = *of_class;
  if (!std::exchange(run.limit_known, true)) run.limit = Bytes(m.limit_bytes);
  if (!std::exchange(run.suspension_known, true)) run.suspended = m.suspended != 0;
  const Bytes limit = run.limit == Bytes() ? MostShared() : run.limit;
  out_.push_back(Outgoing{from.id, wire::RunStarted{token, limit.count}, {}, false});
  const bool told_otherwise =
      run.limit != Bytes(m.limit_bytes) || run.suspended != (m.suspended != 0);
  if (told_otherwise) TellOwner(run);
  ApplyLimit(run);  // its sessions may have come back before it
  for (Seat* seat : SeatsOf(*from.run)) {
    Feed(*seat->gpu, core::event::ClassSet{seat->id, ClassOf(*seat)});
  }
  SuspendFollowers(*from.run);
}

// What class of work it is to be; or nothing, and that has been refused. One from before a restart
// is never refused: if it may not be what it was, it is like any other.
std::optional<core::Class> Service::ClassOf(const Connection& from, const wire::RunBegin& m) {
  constexpr core::Class kUsual = core::Class::kInteractive;
  if (m.of_class.empty()) return kUsual;
  const std::optional<core::Class> named = core::ClassNamed(m.of_class);
  const bool allowed = named != core::Class::kProduction || MayRule(from);
  if (named.has_value() && allowed) return named;
  if (m.run != 0) return kUsual;
  if (!named.has_value()) {
    std::string names;
    for (const std::string_view name : core::kClassNames) {
      names += (names.empty() ? "" : ", ") + std::string(name);
    }
    Refuse(from.id, wire::RefusalCode::kUnknownTarget,
           "no class of work is called \"" + Printable(m.of_class) + "\"; there are " + names,
           false);
  } else {
    Refuse(from.id, wire::RefusalCode::kNotYours,
           "only root or the daemon's owner can start production", false);
  }
  return std::nullopt;
}

void Service::Handle(Connection& from, const wire::RunQuery& m) {
  if (from.role == Connection::Role::kSession) {
    return Refuse(from.id, wire::RefusalCode::kProtocol, "RunQuery is not for sessions", true);
  }
  from.role = Connection::Role::kPeople;
  const auto gpu = std::find_if(gpus_.begin(), gpus_.end(),
                                [&](const auto& each) { return each->info.uuid == m.device; });
  if (gpu == gpus_.end()) {
    return Refuse(from.id, wire::RefusalCode::kUnknownDevice,
                  "there is no GPU " + Printable(m.device), false);
  }
  const RunKey key{from.client.uid, m.run};
  const auto run = runs_.find(key);
  if (run == runs_.end()) {
    return Refuse(from.id, wire::RefusalCode::kUnknownTarget, "there is no such run", false);
  }
  const core::Arbiter& arbiter = (*gpu)->arbiter;
  const Bytes most = arbiter.budget().total();
  const Bytes limit = LimitOn(**gpu, run->second, run->second.oversubscribes);
  wire::RunShown shown{run->second.oversubscribes ? limit.count : std::min(limit, most).count, 0,
                       ""};
  for (const Seat* seat : SeatsOf(key)) {
    if (seat->gpu != gpu->get()) continue;
    const uint64_t bytes = arbiter.limits().used(seat->id).count;
    shown.used_bytes += bytes;
    shown.processes += std::to_string(seat->client.pid) + " " + std::to_string(bytes) + "\n";
  }
  out_.push_back(Outgoing{from.id, shown, {}, false});
}

// Of the GPU that has the most.
Bytes Service::MostShared() const {
  Bytes most;
  for (const auto& gpu : gpus_) most = std::max(most, gpu->arbiter.budget().total());
  return most;
}

bool Service::RefuseTooLarge(const Connection& from, Bytes limit, bool oversubscribes,
                             const std::string& hint) {
  const Bytes most(MostShared().count * (oversubscribes ? kMostCards : 1));
  if (limit <= most) return false;
  Refuse(from.id, wire::RefusalCode::kLimitTooLarge, TooLarge(limit, most, oversubscribes, hint),
         false);
  return true;
}

// The run's limit for its sessions there; where there is none, or it is not known yet, what does
// not bind: the budget bounds those that do not oversubscribe.
Bytes Service::LimitOn(const Gpu& gpu, const Run& run, bool oversubscribes) const {
  if (run.limit > Bytes()) return run.limit;
  if (!oversubscribes) return gpu.info.card;
  return run.limit_known ? BudgetShown(gpu) : Bytes(gpu.info.card.count * kMostCards);
}

void Service::ApplyLimit(const Run& run) {
  for (const auto& gpu : gpus_) {
    Feed(*gpu, core::event::LimitSet{run.id, LimitOn(*gpu, run, run.oversubscribes)});
  }
}

// So that the next daemon, too, knows of it.
void Service::TellOwner(const Run& run) {
  if (run.owner == 0) return;
  const wire::RunChanged changed{run.limit.count, static_cast<uint8_t>(run.suspended ? 1 : 0)};
  out_.push_back(Outgoing{run.owner, changed, {}, false});
}

// Whether it belongs to a run whose `tandem run` has not come back yet: its limit is not known.
bool Service::AwaitsItsRun(const Connection& from, const wire::Message& message) const {
  const auto* hello = std::get_if<wire::Register>(&message);
  if (hello == nullptr || hello->run == 0) return false;
  // One that has come back with memory goes on at once: it may hold up all others.
  const bool empty = hello->allocated_bytes == 0 && hello->contexts == 0 && hello->fixed_bytes == 0;
  if (from.client.predates_daemon && !empty) return false;
  const auto run = runs_.find(RunKey{from.client.uid, hello->run});
  return run == runs_.end() || !run->second.open();
}

// A process that registers again cannot leave the run it is in, nor the limit it has without one.
void Service::JoinRun(const Connection& from, const wire::Register& m, const Seat* old, Seat& seat,
                      core::event::SessionAdded& added) {
  added.limit = seat.gpu->info.card;  // the budget bounds it
  uint64_t token = m.run;
  if (token == 0 && old != nullptr && old->run.has_value()) token = old->run->second;
  if (token != 0) {
    Run& run = FindRun(from.client.uid, token);
    ++run.sessions;
    added.run = run.id;
    added.of_class = run.of_class;
    if (old != nullptr) {
      const bool did = DoesOversubscribe(*old);
      // One with memory cannot have lost what it reaches it by.
      added.oversubscribes = did && (m.oversubscribes != 0 || added.allocated > Bytes());
    } else if (added.oversubscribes) {
      run.oversubscribes = true;  // it has been granted that before
    } else {
      added.oversubscribes = run.oversubscribes && m.oversubscribes == wire::Register::kCan;
    }
    added.limit = LimitOn(*seat.gpu, run, added.oversubscribes);
    seat.run = RunKey{from.client.uid, token};
    seat.suspended_by = old != nullptr ? old->suspended_by : run.suspended_by;
  } else if (old != nullptr) {
    added.run = old->core_run;
    added.limit = seat.gpu->arbiter.limits().limit(old->id);
    added.oversubscribes = false;
  } else {
    added.run = core::RunId{++last_run_};
    added.oversubscribes = false;
  }
  seat.core_run = added.run;
}

// One that comes back is as it was, whatever has become of its run. For one that is new the run's
// state counts, and for one that cannot say how it was; where that is not known yet, it follows.
bool Service::StartsSuspended(const wire::Register& m, const Seat* old, Seat& seat,
                              const core::event::SessionAdded& claims) const {
  if (old != nullptr) {
    seat.follows_run = old->follows_run;
    return old->gpu->arbiter.sessions().at(old->id).suspended;
  }
  const bool new_here = claims.allocated == Bytes() && claims.contexts == 0;
  const bool says_so = m.suspended != wire::Register::kUnsaid;
  if (says_so && (m.suspended != 0 || !new_here)) return m.suspended != 0;
  if (!seat.run.has_value()) return false;
  const Run& run = runs_.at(*seat.run);
  seat.follows_run = !run.suspension_known;
  return run.suspended;
}

// Sessions that came before it was known whether their run is suspended.
void Service::SuspendFollowers(const RunKey& key) {
  const bool suspended = runs_.at(key).suspended;
  for (Seat* seat : SeatsOf(key)) {
    if (!std::exchange(seat->follows_run, false) || !suspended) continue;
    Feed(*seat->gpu, core::event::Suspended{seat->id});
  }
}

}  // namespace tandem::service
