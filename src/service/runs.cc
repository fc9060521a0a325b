// What the service does about runs: opens them, keeps their limits, lets them go on after a
// restart.
#include <algorithm>

#include "src/service/records.h"

namespace tandem::service {
namespace {

std::string TooLarge(Bytes limit, Bytes most) {
  const std::string wish =
      "a limit of " + FormatBytes(limit) + " is more than programs can share, " + FormatBytes(most);
  const uint64_t whole = most.count / MiB(1).count;
  if (whole == 0) return wish + "; other programs hold the card: wait until they end";
  return wish + ". Use --memory " + std::to_string(whole) + "M or less";
}

}  // namespace

// A token nobody knows is one of a daemon that is gone: its sessions still belong together.
Service::Run& Service::FindRun(const Connection& from, uint64_t token) {
  Run& run = runs_[RunKey{from.client.uid, token}];
  if (run.id.value == 0) run.id = core::RunId{++last_run_};
  return run;
}

void Service::Handle(Connection& from, const wire::RunBegin& m) {
  if (from.role == Connection::Role::kSession || from.run.has_value()) {
    return Refuse(from.id, wire::RefusalCode::kProtocol, "RunBegin is out of place here", true);
  }
  from.role = Connection::Role::kPeople;
  // A run from before a restart was within the budget; its sessions may not all have come back.
  if (m.run == 0 && RefuseTooLarge(from, Bytes(m.limit_bytes))) return;
  uint64_t token = m.run;
  while (token == 0) {
    token = config_.random_token();
    if (runs_.count(RunKey{from.client.uid, token}) != 0) token = 0;
  }
  from.run = RunKey{from.client.uid, token};
  Run& run = FindRun(from, token);
  if (run.owner != 0)
    connections_.at(run.owner)->run.reset();  // the same `tandem run`, from before
  run.name = Printable(m.name.empty() ? m.program : m.name);
  run.limit = Bytes(m.limit_bytes);
  run.suspended = m.suspended != 0;
  run.owner = from.id;
  const Bytes limit = run.limit == Bytes() ? MostShared() : run.limit;
  out_.push_back(Outgoing{from.id, wire::RunStarted{token, limit.count}, {}, false});
  ApplyLimit(run);  // its sessions may have come back before it
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
  const Bytes limit = run->second.limit == Bytes() ? most : std::min(run->second.limit, most);
  wire::RunShown shown{limit.count, 0, ""};
  for (const Seat* seat : SeatsOf(key)) {
    if (seat->gpu != gpu->get()) continue;
    const uint64_t bytes = arbiter.limits().allocated(seat->id).count;
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

bool Service::RefuseTooLarge(const Connection& from, Bytes limit) {
  const Bytes most = MostShared();
  if (limit <= most) return false;
  Refuse(from.id, wire::RefusalCode::kLimitTooLarge, TooLarge(limit, most), false);
  return true;
}

void Service::ApplyLimit(const Run& run) {
  for (const auto& gpu : gpus_) {
    const Bytes limit = run.limit == Bytes() ? gpu->info.card : run.limit;
    Feed(*gpu, core::event::LimitSet{run.id, limit});
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
  const bool empty = hello->allocated_bytes == 0 && hello->contexts == 0;
  if (from.client.predates_daemon && !empty) return false;
  const auto run = runs_.find(RunKey{from.client.uid, hello->run});
  return run == runs_.end() || run->second.owner == 0;
}

// One that comes back is as it was, whatever has become of its run; for one that is new the run's
// state counts.
bool Service::StartsSuspended(const wire::Register& m, const Seat* old,
                              const core::event::SessionAdded& claims) const {
  if (old != nullptr) return old->gpu->arbiter.sessions().at(old->id).suspended;
  if (m.suspended != 0) return true;
  const bool new_here = claims.allocated == Bytes() && claims.contexts == 0;
  const auto run = std::find_if(runs_.begin(), runs_.end(),
                                [&](const auto& entry) { return entry.second.id == claims.run; });
  return new_here && run != runs_.end() && run->second.suspended;
}

}  // namespace tandem::service
