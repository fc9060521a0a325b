// Leases of engines: the users who may create and end them, their runs, and the processes that may
// use them.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/base/json.h"
#include "src/core/share_text.h"
#include "src/service/records.h"
#include "src/wire/open_runs.h"

namespace tandem::service {
namespace {

constexpr Duration kLook = Seconds(5);
// An engine creates the lease before it starts the job: the cgroup may not exist for so long.
constexpr Duration kJobPatience = Seconds(600);

}  // namespace

void Service::TakeKeptLeases() {
  if (leases_.lost() > 0) {
    Note(std::to_string(leases_.lost()) + " leases that the daemon before had kept are damaged");
  }
  for (const auto& [job, lease] : leases_.all()) OpenLease(lease);
}

// Its run: sessions belong to it as to one of `tandem run`.
void Service::OpenLease(const Lease& lease) {
  const LeaseTerms& terms = lease.terms;
  Run& run = FindRun(terms.uid, lease.token);
  run.leased = true;
  run.name = Printable(terms.name);
  run.limit = terms.limit;
  run.limited = LimitOrder{config_.uid, now_};
  run.oversubscribes = terms.oversubscribes;
  run.of_class = terms.of_class;
  run.share = core::ParseShare(terms.share);
  run.limit_known = run.suspension_known = true;
  run.started = run.unused_since = now_;
  if (const auto& suspended = lease.suspended; suspended.has_value()) {
    run.suspended = true;
    run.suspended_by = suspended->by;
    run.refuses_at = suspended->refuses_at;
    if (run.refuses_at.has_value()) refusals_at_ = now_;  // to look at all of them
  }
  if (terms.cgroup.empty() || !config_.has_cgroup) return;
  lease_watches_[terms.job] = LeaseWatch{now_, config_.has_cgroup(terms.cgroup)};
  if (!leases_at_.has_value()) leases_at_ = now_ + kLook;
}

void Service::CreateLease(Connection& from, const wire::Control& m) {
  const auto refuse = [&](wire::RefusalCode code, const std::string& reason) {
    Refuse(from.id, code, reason, false);
  };
  if (!MayRule(from)) {
    return refuse(wire::RefusalCode::kNotYours,
                  "only root or the daemon's owner can create leases");
  }
  Result<LeaseTerms> terms = ParseLeaseRequest(m.value);
  if (!terms.ok()) return refuse(wire::RefusalCode::kUnknownTarget, terms.error().message);
  // In the user namespace of a user's own container that user has another number.
  if (config_.uid != 0) terms->uid = config_.uid;
  if (!terms->share.empty() && !core::ParseShare(terms->share).has_value()) {
    return refuse(wire::RefusalCode::kUnknownTarget, core::NoShareText(Printable(terms->share)));
  }
  if (RefuseTooLarge(from, terms->limit, terms->oversubscribes, "")) return;
  const bool known = leases_.OfJob(terms->job) != nullptr;
  const Result<const Lease*> lease =
      leases_.Create(*std::move(terms), SharedBytes(), config_.random_token, TimeText(now_));
  if (!lease.ok()) {
    const bool full = lease.error().code == ErrorCode::kRefused;
    return refuse(full ? wire::RefusalCode::kTooMany : wire::RefusalCode::kUnknownTarget,
                  Printable(lease.error().message));
  }
  if (!known) OpenLease(**lease);
  out_.push_back(Outgoing{from.id, wire::Answer{JsonText(LeaseJson(**lease))}, {}, false});
}

void Service::EndLease(Connection& from, const wire::Control& m) {
  if (!MayRule(from)) {
    return Refuse(from.id, wire::RefusalCode::kNotYours,
                  "only root or the daemon's owner can end leases", false);
  }
  const Result<Lease> ended = leases_.End(m.target);
  if (!ended.ok()) {
    return Refuse(from.id, wire::RefusalCode::kUnknownTarget, Printable(ended.error().message),
                  false);
  }
  nlohmann::json sessions = nlohmann::json::array();
  for (const core::SessionId id : CloseLease(*ended)) sessions.push_back(id.value);
  const nlohmann::json answer = {{"lease", LeaseJson(*ended)}, {"sessions", std::move(sessions)}};
  out_.push_back(Outgoing{from.id, wire::Answer{JsonText(answer)}, {}, false});
}

// Of each GPU, by index.
std::map<int, Bytes> Service::SharedBytes() const {
  std::map<int, Bytes> shared;
  for (const auto& gpu : gpus_) shared[gpu->info.index] = gpu->arbiter.budget().total();
  return shared;
}

// Its sessions keep what they have until they end; others cannot join. Which these are.
std::vector<core::SessionId> Service::CloseLease(const Lease& ended) {
  const RunKey key{ended.terms.uid, ended.token};
  lease_watches_.erase(ended.terms.job);
  std::vector<core::SessionId> left;
  for (const Seat* seat : SeatsOf(key)) left.push_back(seat->id);
  Run& run = runs_.at(key);
  run.leased = false;
  run.ended = true;
  if (run.sessions == 0 && !run.open()) runs_.erase(key);
  return left;
}

// A program that starts, and may not use this GPU as it says.
bool Service::RefuseWithoutLease(const Connection& from, const Gpu& gpu, const wire::Register& m) {
  const auto refuse = [&](const std::string& reason) {
    Refuse(from.id, wire::RefusalCode::kNotYours, reason, true);
    return true;
  };
  const Lease* const lease = leases_.OfToken(from.client.uid, m.run);
  if (lease == nullptr) {
    if (from.client.predates_daemon) return false;
    // The token of an older `tandem run` may look like a lease's.
    const auto run = runs_.find(RunKey{from.client.uid, m.run});
    const bool is_run = m.run != 0 && run != runs_.end() && !run->second.ended;
    if (wire::IsLease(m.run) && !is_run) {
      return refuse("the lease that TANDEM_RUN names has ended, or is another user's");
    }
    if (!config_.leases_only || MayRule(from)) return false;
    return refuse(
        "this machine lends its GPUs to jobs of its cluster engine only: start the program as a "
        "job");
  }
  const LeaseTerms& terms = lease->terms;
  const std::string job = "job " + Printable(terms.job);
  if (std::find(terms.gpus.begin(), terms.gpus.end(), gpu.info.index) == terms.gpus.end()) {
    std::string names;
    for (const int index : terms.gpus) {
      names += (names.empty() ? "gpu" : ", gpu") + std::to_string(index);
    }
    return refuse(job + " has a lease on " + names + ", not on gpu" +
                  std::to_string(gpu.info.index));
  }
  if (terms.cgroup.empty() || !config_.cgroups_of) return false;
  if (IsInCgroup(config_.cgroups_of(from.client.pid), terms.cgroup)) return false;
  return refuse("process " + std::to_string(from.client.pid) + " is not one of " + job +
                ": it is outside of the job's cgroup");
}

void Service::EndLeasesOfGoneJobs() {
  leases_at_.reset();
  std::vector<std::string> gone;
  for (auto& [job, watch] : lease_watches_) {
    const bool exists = config_.has_cgroup(leases_.OfJob(job)->terms.cgroup);
    watch.seen = watch.seen || exists;
    if (!exists && (watch.seen || now_ - watch.since > kJobPatience)) gone.push_back(job);
  }
  for (const std::string& job : gone) {
    const Result<Lease> ended = leases_.End(job);
    CloseLease(*ended);
    Note("the lease of job \"" + Printable(job) + "\" ends: its cgroup is gone");
  }
  if (!lease_watches_.empty()) leases_at_ = now_ + kLook;
}

// So that the next daemon, too, knows of it.
void Service::KeepSuspension(const RunKey& key) {
  const Run& run = runs_.at(key);
  std::optional<Suspension> suspended;
  if (run.suspended) suspended = Suspension{run.suspended_by.value_or(0), run.refuses_at};
  leases_.SetSuspended(key.first, key.second, suspended);
  if (run.refuses_at.has_value()) {
    refusals_at_ = std::min(refusals_at_.value_or(*run.refuses_at), *run.refuses_at);
  }
}

// Of leases that have been suspended for as long as the order said.
void Service::RefuseCallsThatWait() {
  refusals_at_.reset();
  for (auto& [key, run] : runs_) {
    if (!run.suspended || !run.refuses_at.has_value() || run.refuses) continue;
    if (*run.refuses_at > now_) {
      refusals_at_ = std::min(refusals_at_.value_or(*run.refuses_at), *run.refuses_at);
      continue;
    }
    run.refuses = true;
    Note("calls of \"" + run.name + "\" that wait for the GPU fail from now on");
    for (const Seat* seat : SeatsOf(key)) {
      const bool suspended = seat->gpu->arbiter.sessions().at(seat->id).suspended;
      if (suspended) Feed(*seat->gpu, core::event::Suspended{seat->id, true, true});
    }
  }
}

// Tokens are shown to root, the daemon's owner and the lease's own user.
std::string Service::LeasesJson(const Connection& from) const {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [job, lease] : leases_.all()) {
    nlohmann::json entry = LeaseJson(lease);
    if (!MayRule(from) && from.client.uid != lease.terms.uid) entry["token"] = nullptr;
    nlohmann::json sessions = nlohmann::json::array();
    for (const Seat* seat : SeatsOf(RunKey{lease.terms.uid, lease.token})) {
      sessions.push_back(seat->id.value);
    }
    entry["sessions"] = std::move(sessions);
    list.push_back(std::move(entry));
  }
  nlohmann::json gpus = nlohmann::json::array();
  for (const auto& gpu : gpus_) {
    gpus.push_back({{"index", gpu->info.index},
                    {"healthy", gpu->healthy},
                    {"budget_bytes", gpu->arbiter.budget().total().count},
                    {"guaranteed_bytes", leases_.Guaranteed(gpu->info.index).count}});
  }
  const nlohmann::json answer = {{"leases", std::move(list)}, {"gpus", std::move(gpus)}};
  return AsciiJson(answer);
}

}  // namespace tandem::service
