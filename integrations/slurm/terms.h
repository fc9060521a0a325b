// What a job asks for on the command lines of srun, sbatch and salloc, and what the administrator
// says in plugstack.conf.
//
// Pure. Threading: none.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/result.h"

namespace tandem::slurm {

struct Memory {
  Bytes scheduled;  // what Slurm counts, on each node of the job
  Bytes limit;      // what the job may allocate there; at least `scheduled`

  bool operator==(const Memory&) const = default;
};

// "20G" or "20G:40G". kInvalid, in words for the user who typed it.
Result<Memory> ParseMemory(std::string_view text);

// kInvalid, in words for the user: no class of work, no share.
Status CheckClass(std::string_view text);
Status CheckShare(std::string_view text);

// The arguments in the line of plugstack.conf.
struct Settings {
  double oversubscribe = 1;  // shards that Slurm counts for each GiB of a GPU
  std::string tandem;        // the command's path; empty: of this installation
  // NAME, VALUE: where the command finds this node's daemon. "%n" stands for the node's name.
  std::vector<std::pair<std::string, std::string>> environment;
  // Of a job, as /proc/PID/cgroup shows it: "%n" stands for the node's name, "%u" for the user's
  // number, "%j" for the job's. Empty: the lease is for all processes of the user.
  std::string cgroup;
  // By the names of QOS, accounts and partitions.
  struct Defaults {
    std::map<std::string, std::string, std::less<>> classes, shares;
  };
  Defaults of_qos, of_accounts, of_partitions;

  // Whether a job's QOS changes anything.
  bool UsesQos() const { return !of_qos.classes.empty() || !of_qos.shares.empty(); }
};

// kInvalid, in words for the administrator.
Result<Settings> ParseSettings(const std::vector<std::string_view>& arguments);

// `text` with the value of each letter after a "%", where it has one.
std::string Filled(std::string_view text, const std::map<char, std::string>& values);

// The words of `tandem lease create` for a job.
struct Job {
  std::string id, uid, gpus, partition, account;  // as in the prolog's environment; gpus: "0,1"
  Memory memory;
  std::string of_class, share;  // as the job asks; may be empty
  std::string qos = {};         // empty: it has none, or it does not matter
  std::string node = {};
};
std::vector<std::string> LeaseWords(const Job& job, const Settings& settings);

// `item` in front of a list of the dynamic loader, and nowhere else in it.
std::string PutFirst(std::string_view item, std::string_view list);

}  // namespace tandem::slurm
