// Leases: what cluster engines have been given for their jobs. An engine says which job of which
// user may use which GPUs, with how much memory; only that job's processes may use the lease.
//
// Pure: a function keeps the leases. Threading: none; the caller serialises.
// Invariants
// 1. On no GPU do the requests of all leases exceed what can be shared there. Their limits may.
// 2. A job has at most one lease; its token is above those of runs (wire::IsLease).
// 3. A lease is kept before its engine is told of it: a restart of the daemon loses none.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/result.h"
#include "src/base/time.h"
#include "src/core/types.h"

namespace tandem::service {

inline constexpr int kLeaseRequestVersion = 1;
inline constexpr size_t kMaxLeases = 4096;

// What an engine asks for, and what a lease is.
struct LeaseTerms {
  std::string job;      // as the engine calls it
  std::string name;     // in listings; by default the job's, or "job-7"
  std::string project;  // for accounts; may be empty
  unsigned uid = 0;     // of the job's processes
  std::vector<int> gpus;
  Bytes request;                // guaranteed on each of them
  Bytes limit;                  // that the job may allocate on each; at least `request`
  bool oversubscribes = false;  // the limit may exceed the GPU
  std::string share;            // of the time, as `tandem share` takes it; empty: none is set
  core::Class of_class = core::Class::kInteractive;
  // The job's processes are in it or below it, as /proc/PID/cgroup shows it; empty: any of the
  // user's. The lease ends with it.
  std::string cgroup;

  bool operator==(const LeaseTerms&) const = default;
};

// A lease whose processes wait, by an order.
struct Suspension {
  unsigned by = 0;                    // uid
  std::optional<Instant> refuses_at;  // from then on their calls fail instead; none: they never do

  bool operator==(const Suspension&) const = default;
};

struct Lease {
  LeaseTerms terms;
  uint64_t token = 0;
  std::string created;  // RFC 3339
  std::optional<Suspension> suspended = std::nullopt;
};

// What the engine's request means, `version` 1 (docs/leases.md). kInvalid, in words for the
// administrator of the engine.
Result<LeaseTerms> ParseLeaseRequest(const std::string& json);

class Leases {
 public:
  // `keep` is given all leases, as text, whenever they change.
  using Keep = std::function<Status(const std::string& text)>;

  // With the leases of a daemon before this one, as `keep` was given them. Those that cannot be
  // read are left out; the number of these is in `lost`.
  explicit Leases(Keep keep = {}, const std::string& kept = "");

  // The same terms again give the same lease. `shared`: what can be shared of each GPU, by index.
  // kInvalid: no such GPU, or other terms than the job has; kRefused: the guarantees do not fit.
  Result<const Lease*> Create(LeaseTerms terms, const std::map<int, Bytes>& shared,
                              const std::function<uint64_t()>& token, const std::string& created);
  // kNotFound: the job has none.
  Result<Lease> End(const std::string& job);
  // Nothing where there is no such lease.
  void SetSuspended(unsigned uid, uint64_t token, const std::optional<Suspension>& suspended);

  // The job's GPUs from now on. kNotFound: it has no lease; kInvalid: there is no such GPU;
  // kRefused: what it is guaranteed does not fit on one that it has not had.
  Status Move(const std::string& job, std::vector<int> gpus, const std::map<int, Bytes>& shared);

  const Lease* OfToken(unsigned uid, uint64_t token) const;
  // The lease whose cgroup has a process with `cgroups`, the text of its /proc/PID/cgroup.
  const Lease* OfCgroups(unsigned uid, const std::string& cgroups) const;
  bool HasCgroups() const;
  const Lease* OfJob(const std::string& job) const;
  const std::map<std::string, Lease>& all() const { return leases_; }
  size_t lost() const { return lost_; }
  Bytes Guaranteed(int gpu) const;

 private:
  Status Save() const;
  // Whether the request fits beside those of all leases there.
  Status HasRoom(int gpu, Bytes request, const std::map<int, Bytes>& shared) const;

  Keep keep_;
  std::map<std::string, Lease> leases_;  // by job
  size_t lost_ = 0;
};

// Whether a process in `cgroups`, the text of its /proc/PID/cgroup, is in `cgroup` or below it.
bool IsInCgroup(const std::string& cgroups, const std::string& cgroup);

nlohmann::json LeaseJson(const Lease& lease);

}  // namespace tandem::service
