#include "src/service/leases.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "src/base/json.h"
#include "src/core/class_names.h"
#include "src/wire/open_runs.h"

namespace tandem::service {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxText = 512;
constexpr size_t kMaxGpus = 64;
constexpr int kMostTokens = 100;  // that are tried

Error Invalid(std::string message) {
  return Error{ErrorCode::kInvalid, std::move(message)};
}

// A text of the request; empty where it is absent.
Result<std::string> TextOf(const Json& request, const char* key) {
  const auto at = request.find(key);
  if (at == request.end() || at->is_null()) return std::string();
  if (!at->is_string()) return Invalid(std::string("\"") + key + "\" must be a text");
  std::string text = at->get<std::string>();
  if (text.size() > kMaxText) {
    return Invalid(std::string("\"") + key + "\" is longer than " + std::to_string(kMaxText) +
                   " bytes");
  }
  return text;
}

Result<uint64_t> NumberOf(const Json& request, const char* key, uint64_t most) {
  const auto at = request.find(key);
  if (at == request.end() || at->is_null()) return uint64_t{0};
  if (!at->is_number_unsigned() || at->get<uint64_t>() > most) {
    return Invalid(std::string("\"") + key + "\" must be a whole number, at most " +
                   std::to_string(most));
  }
  return at->get<uint64_t>();
}

Result<std::vector<int>> GpusOf(const Json& request) {
  const auto at = request.find("gpus");
  if (at == request.end() || !at->is_array() || at->empty() || at->size() > kMaxGpus) {
    return Invalid("\"gpus\" must be a list of the numbers of GPUs, such as [0]");
  }
  std::vector<int> gpus;
  for (const Json& gpu : *at) {
    if (!gpu.is_number_unsigned() || gpu.get<uint64_t>() >= 1024) {
      return Invalid("\"gpus\" must be a list of the numbers of GPUs, such as [0]");
    }
    gpus.push_back(gpu.get<int>());
  }
  std::sort(gpus.begin(), gpus.end());
  gpus.erase(std::unique(gpus.begin(), gpus.end()), gpus.end());
  return gpus;
}

Status ReadMemory(const Json& request, LeaseTerms* terms) {
  constexpr uint64_t kMost = uint64_t{1} << 53;
  ASSIGN_OR_RETURN(const uint64_t wanted, NumberOf(request, "memory_request_bytes", kMost));
  ASSIGN_OR_RETURN(const uint64_t limit, NumberOf(request, "memory_limit_bytes", kMost));
  terms->request = Bytes(wanted);
  terms->limit = limit == 0 ? terms->request : Bytes(limit);
  if (terms->limit == Bytes()) {
    return Invalid("\"memory_request_bytes\" or \"memory_limit_bytes\" must be more than 0");
  }
  if (terms->limit < terms->request) {
    return Invalid("the limit, " + FormatBytes(terms->limit) + ", is less than the request, " +
                   FormatBytes(terms->request));
  }
  const auto more = request.find("oversubscribe");
  terms->oversubscribes = more != request.end() && more->is_boolean() && more->get<bool>();
  return {};
}

Json TermsJson(const LeaseTerms& terms) {
  return {{"version", kLeaseRequestVersion},
          {"job", terms.job},
          {"name", terms.name},
          {"project", terms.project},
          {"uid", terms.uid},
          {"gpus", terms.gpus},
          {"memory_request_bytes", terms.request.count},
          {"memory_limit_bytes", terms.limit.count},
          {"oversubscribe", terms.oversubscribes},
          {"compute_share", terms.share},
          {"class", core::NameOf(terms.of_class)},
          {"cgroup", terms.cgroup}};
}

// A number would be taken for a session's.
std::string NameFor(const std::string& job) {
  const bool number = job.find_first_not_of("0123456789") == std::string::npos;
  return number ? "job-" + job : job;
}

Result<LeaseTerms> TermsOf(const Json& request) {
  if (!request.is_object()) return Invalid("a lease request must be a JSON object");
  ASSIGN_OR_RETURN(const uint64_t version, NumberOf(request, "version", 1000));
  if (version != kLeaseRequestVersion) {
    return Invalid("this daemon understands lease requests of version " +
                   std::to_string(kLeaseRequestVersion) + ", not " + std::to_string(version));
  }
  LeaseTerms terms;
  ASSIGN_OR_RETURN(terms.job, TextOf(request, "job"));
  if (terms.job.empty()) return Invalid("\"job\" must name the job");
  ASSIGN_OR_RETURN(terms.name, TextOf(request, "name"));
  if (terms.name.empty()) terms.name = NameFor(terms.job);
  ASSIGN_OR_RETURN(terms.project, TextOf(request, "project"));
  const auto uid = request.find("uid");
  if (uid == request.end()) return Invalid("\"uid\" must be the number of the job's user");
  ASSIGN_OR_RETURN(const uint64_t number, NumberOf(request, "uid", UINT32_MAX - 1));
  terms.uid = static_cast<unsigned>(number);
  ASSIGN_OR_RETURN(terms.gpus, GpusOf(request));
  TRY(ReadMemory(request, &terms));
  ASSIGN_OR_RETURN(terms.share, TextOf(request, "compute_share"));
  ASSIGN_OR_RETURN(const std::string of_class, TextOf(request, "class"));
  if (!of_class.empty()) {
    const auto named = core::ClassNamed(of_class);
    if (!named.has_value()) return Invalid("no class of work is called \"" + of_class + "\"");
    terms.of_class = *named;
  }
  ASSIGN_OR_RETURN(terms.cgroup, TextOf(request, "cgroup"));
  if (!terms.cgroup.empty() && !terms.cgroup.starts_with('/')) {
    return Invalid("\"cgroup\" must begin with a slash, as in /proc/PID/cgroup");
  }
  while (terms.cgroup.size() > 1 && terms.cgroup.ends_with('/')) terms.cgroup.pop_back();
  return terms;
}

// As Save writes it. The monotonic clock goes on as long as the file lasts.
std::optional<Suspension> SuspensionOf(const Json& json) {
  const auto by = NumberOf(json, "suspended_by", UINT32_MAX - 1);
  if (!by.ok() || !json.contains("suspended_by")) return std::nullopt;
  Suspension suspended{static_cast<unsigned>(*by), std::nullopt};
  const auto at = NumberOf(json, "refuses_at_ns", INT64_MAX);
  if (at.ok() && *at != 0) suspended.refuses_at = Instant(static_cast<int64_t>(*at));
  return suspended;
}

}  // namespace

Result<LeaseTerms> ParseLeaseRequest(const std::string& json) {
  const Json request = ParseJson(json);
  if (request.is_discarded()) return Invalid("a lease request must be a JSON object");
  return TermsOf(request);
}

Leases::Leases(Keep keep, const std::string& kept) : keep_(std::move(keep)) {
  std::istringstream lines(kept);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    const Json json = ParseJson(line);
    Result<LeaseTerms> terms = TermsOf(json);
    const auto token = NumberOf(json, "token", UINT64_MAX);
    const auto created = TextOf(json, "created");
    const bool whole = terms.ok() && token.ok() && created.ok() && wire::IsLease(*token);
    if (!whole || leases_.count(terms->job) != 0) {
      ++lost_;
      continue;
    }
    const std::string job = terms->job;
    leases_[job] = Lease{*std::move(terms), *token, *created, SuspensionOf(json)};
  }
}

Status Leases::Save() const {
  if (!keep_) return {};
  std::string text;
  for (const auto& [job, lease] : leases_) {
    Json line = LeaseJson(lease);
    if (const auto& suspended = lease.suspended; suspended.has_value()) {
      line["suspended_by"] = suspended->by;
      line["refuses_at_ns"] = suspended->refuses_at.value_or(Instant()).ns;
    }
    text += JsonText(line) + "\n";
  }
  return keep_(text);
}

Bytes Leases::Guaranteed(int gpu) const {
  Bytes sum;
  for (const auto& [job, lease] : leases_) {
    const std::vector<int>& gpus = lease.terms.gpus;
    if (std::find(gpus.begin(), gpus.end(), gpu) != gpus.end()) sum += lease.terms.request;
  }
  return sum;
}

Status Leases::HasRoom(int gpu, Bytes request, const std::map<int, Bytes>& shared) const {
  const std::string name = "gpu" + std::to_string(gpu);
  const auto room = shared.find(gpu);
  if (room == shared.end()) return Invalid("there is no " + name);
  const Bytes given = Guaranteed(gpu), left = SaturatingSubtract(room->second, given);
  if (request <= left) return {};
  return Error{ErrorCode::kRefused, "cannot guarantee " + FormatBytes(request) + " on " + name +
                                        ": leases have " + FormatBytes(given) + " of " +
                                        FormatBytes(room->second) + ", " + FormatBytes(left) +
                                        " are left"};
}

Result<const Lease*> Leases::Create(LeaseTerms terms, const std::map<int, Bytes>& shared,
                                    const std::function<uint64_t()>& token,
                                    const std::string& created) {
  const auto same = leases_.find(terms.job);
  if (same != leases_.end()) {
    if (same->second.terms == terms) return &same->second;
    return Invalid("job " + terms.job + " has a lease on other terms: end that one first");
  }
  if (leases_.size() >= kMaxLeases) {
    return Error{ErrorCode::kRefused,
                 "there are " + std::to_string(kMaxLeases) + " leases already"};
  }
  for (const int gpu : terms.gpus) {
    TRY(HasRoom(gpu, terms.request, shared));
  }
  const std::string job = terms.job;
  Lease lease{std::move(terms), 0, created, std::nullopt};
  const auto taken = [&] {
    return std::any_of(leases_.begin(), leases_.end(),
                       [&](const auto& entry) { return entry.second.token == lease.token; });
  };
  for (int tried = 0; lease.token == 0 || taken(); ++tried) {
    if (tried == kMostTokens) return Error{ErrorCode::kFailed, "the system has no random numbers"};
    lease.token = wire::LeaseToken(token());
  }
  const auto at = leases_.emplace(job, std::move(lease)).first;
  if (const Status saved = Save(); !saved.ok()) {
    leases_.erase(at);
    return Error{ErrorCode::kFailed, "cannot keep the lease: " + saved.error().message};
  }
  return &at->second;
}

Result<Lease> Leases::End(const std::string& job) {
  const auto at = leases_.find(job);
  if (at == leases_.end()) return Error{ErrorCode::kNotFound, "job " + job + " has no lease"};
  Lease ended = std::move(at->second);
  leases_.erase(at);
  // The next daemon finds out that the job is gone.
  [[maybe_unused]] const Status saved = Save();
  return ended;
}

void Leases::SetSuspended(unsigned uid, uint64_t token,
                          const std::optional<Suspension>& suspended) {
  for (auto& [job, lease] : leases_) {
    if (lease.token != token || lease.terms.uid != uid || lease.suspended == suspended) continue;
    lease.suspended = suspended;
    // Where it cannot be kept, the next daemon lets the job go on.
    [[maybe_unused]] const Status saved = Save();
  }
}

Status Leases::Move(const std::string& job, std::vector<int> gpus,
                    const std::map<int, Bytes>& shared) {
  const auto at = leases_.find(job);
  if (at == leases_.end()) return Error{ErrorCode::kNotFound, "job " + job + " has no lease"};
  LeaseTerms& terms = at->second.terms;
  std::sort(gpus.begin(), gpus.end());
  if (terms.gpus == gpus) return {};
  for (const int gpu : gpus) {
    const bool has = std::find(terms.gpus.begin(), terms.gpus.end(), gpu) != terms.gpus.end();
    if (!has) TRY(HasRoom(gpu, terms.request, shared));
  }
  std::swap(terms.gpus, gpus);
  Status saved = Save();
  if (!saved.ok()) terms.gpus = std::move(gpus);
  return saved;
}

const Lease* Leases::OfToken(unsigned uid, uint64_t token) const {
  for (const auto& [job, lease] : leases_) {
    if (lease.token == token && lease.terms.uid == uid) return &lease;
  }
  return nullptr;
}

const Lease* Leases::OfCgroups(unsigned uid, const std::string& cgroups) const {
  for (const auto& [job, lease] : leases_) {
    const LeaseTerms& terms = lease.terms;
    if (terms.uid != uid || terms.cgroup.empty()) continue;
    if (IsInCgroup(cgroups, terms.cgroup)) return &lease;
  }
  return nullptr;
}

bool Leases::HasCgroups() const {
  return std::any_of(leases_.begin(), leases_.end(),
                     [](const auto& each) { return !each.second.terms.cgroup.empty(); });
}

const Lease* Leases::OfJob(const std::string& job) const {
  const auto at = leases_.find(job);
  return at == leases_.end() ? nullptr : &at->second;
}

bool IsInCgroup(const std::string& cgroups, const std::string& cgroup) {
  std::istringstream lines(cgroups);
  for (std::string line; std::getline(lines, line);) {
    // "NUMBER:CONTROLLERS:/PATH"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string path = line.substr(second + 1);
    const bool below = cgroup == "/" || (path.starts_with(cgroup) && path[cgroup.size()] == '/');
    if (path == cgroup || below) return true;
  }
  return false;
}

Json LeaseJson(const Lease& lease) {
  Json json = TermsJson(lease.terms);
  json["token"] = lease.token;
  json["created"] = lease.created;
  json["suspended"] = lease.suspended.has_value();
  return json;
}

}  // namespace tandem::service
