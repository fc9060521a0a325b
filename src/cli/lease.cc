#include "src/cli/lease.h"

#include <fmt/core.h>

#include <charconv>
#include <iterator>
#include <memory>

#include "src/base/bytes.h"
#include "src/base/json.h"
#include "src/base/layout.h"
#include "src/base/user_name.h"
#include "src/cli/daemon.h"
#include "src/cli/environment.h"
#include "src/cli/fields.h"
#include "src/cli/lease_follow.h"
#include "src/cli/listing.h"
#include "src/cli/print.h"
#include "src/cli/share.h"
#include "src/cli/table.h"
#include "src/core/class_names.h"
#include "src/usage/usage.h"

namespace tandem::cli {
namespace {

using Json = nlohmann::json;

constexpr int kRequestVersion = 1;

// "0" or "gpu0".
Result<int> GpuNumber(const std::string& text) {
  const std::string_view digits = std::string_view(text).substr(text.starts_with("gpu") ? 3 : 0);
  int number = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, number);
  if (error == std::errc() && stop == end && number >= 0) return number;
  return Error{ErrorCode::kInvalid,
               fmt::format("\"{}\" is no GPU: `tandem status` lists gpu0 and others", text)};
}

Result<std::string> RequestOf(const LeaseOptions& options) {
  Json request = {{"version", kRequestVersion},     {"job", options.job},
                  {"name", options.name},           {"project", options.project},
                  {"compute_share", options.share}, {"class", options.of_class},
                  {"cgroup", options.cgroup},       {"oversubscribe", options.oversubscribe}};
  ASSIGN_OR_RETURN(request["uid"], UserNumberOf(options.user));
  request["gpus"] = Json::array();
  for (const std::string& gpu : options.gpus) {
    ASSIGN_OR_RETURN(const int number, GpuNumber(gpu));
    request["gpus"].push_back(number);
  }
  if (!options.request.empty()) {
    ASSIGN_OR_RETURN(const Bytes bytes, ParseSize(options.request));
    request["memory_request_bytes"] = bytes.count;
  }
  if (!options.limit.empty()) {
    ASSIGN_OR_RETURN(const Bytes bytes, ParseSize(options.limit));
    request["memory_limit_bytes"] = bytes.count;
  }
  return AsciiJson(request);
}

// What the processes of the job need, a NAME=VALUE on each line.
Result<std::string> EnvironmentText(const Json& lease, Gpu gpu) {
  ASSIGN_OR_RETURN(const Layout layout, OwnLayout());
  const uint64_t token =
      Member(lease, "token").is_number_unsigned() ? Member(lease, "token").get<uint64_t>() : 0;
  Environment environment;
  const Environment own = OwnEnvironment();
  for (const std::string& entry : own) {
    // Where this node's daemon is, and what its software GPUs are.
    if (entry.starts_with("TANDEM_RUNTIME_DIR=") || entry.starts_with("TANDEM_SOFT_")) {
      environment.push_back(entry);
    }
  }
  ASSIGN_OR_RETURN(environment, SharedEnvironment(std::move(environment), layout, gpu, token));
  SetRunName(&environment, RawText(lease, "name"));
  std::string text;
  for (const std::string& entry : environment) text += entry + "\n";
  return text;
}

Result<std::string> CreateLease(const LeaseOptions& options, Gpu gpu) {
  ASSIGN_OR_RETURN(const std::string request, RequestOf(options));
  ASSIGN_OR_RETURN(wire::Channel channel, ConnectRunning());
  const wire::Control order{"lease", options.job, 0, request};
  ASSIGN_OR_RETURN(const std::string answer, AskForJson(&channel, order));
  if (options.json) {
    ASSIGN_OR_RETURN(const std::string line, CompactJson(answer));
    return line + "\n";
  }
  ASSIGN_OR_RETURN(const Json lease, Parse(answer));
  if (options.environment) return EnvironmentText(lease, gpu);
  return Text(Member(lease, "token")) + "\n";
}

// The lease of a job, as the daemon lists it.
Result<Json> LeaseOf(const std::string& job) {
  ASSIGN_OR_RETURN(wire::Channel channel, ConnectRunning());
  ASSIGN_OR_RETURN(const std::string answer, AskForJson(&channel, wire::Query{"leases"}));
  ASSIGN_OR_RETURN(const Json leases, Parse(answer));
  for (const Json& lease : List(leases, "leases")) {
    if (RawText(lease, "job") == job) return lease;
  }
  return Error{ErrorCode::kNotFound, fmt::format("job {} has no lease on this machine", job)};
}

Result<std::string> ShowEnvironment(const LeaseOptions& options, Gpu gpu) {
  ASSIGN_OR_RETURN(const Json lease, LeaseOf(options.job));
  return EnvironmentText(lease, gpu);
}

Result<std::string> EndLease(const LeaseOptions& options) {
  ASSIGN_OR_RETURN(wire::Channel channel, ConnectRunning());
  ASSIGN_OR_RETURN(const std::string answer,
                   AskForJson(&channel, wire::Control{"end-lease", options.job, 0, ""}));
  if (options.json) {
    ASSIGN_OR_RETURN(const std::string line, CompactJson(answer));
    return line + "\n";
  }
  ASSIGN_OR_RETURN(const Json ended, Parse(answer));
  const size_t left = List(ended, "sessions").size();
  if (left == 0) return std::string();
  return fmt::format("{} session{} of the job still run{}: end the job\n", left,
                     left == 1 ? "" : "s", left == 1 ? "s" : "");
}

std::string GpuNames(const Json& lease) {
  std::string names;
  for (const Json& gpu : List(lease, "gpus")) names += (names.empty() ? "gpu" : ",gpu") + Text(gpu);
  return names;
}

std::string LeasesTable(const Json& answer, const Screen& screen) {
  const std::vector<Json>& leases = List(answer, "leases");
  std::string text;
  if (leases.empty()) {
    text = "There are no leases. A cluster engine creates them: `tandem help lease`.\n";
  } else {
    Table table({{"JOB"},
                 {"USER"},
                 {"GPU"},
                 {"REQUEST"},
                 {"LIMIT"},
                 {"CLASS", 3},
                 {"SHARE", 2},
                 {"PROJECT", 1},
                 {"SESSIONS"}});
    for (const Json& lease : leases) {
      const std::string share = Text(Member(lease, "compute_share"));
      const std::string project = Text(Member(lease, "project"));
      table.Add({{CutText(Text(Member(lease, "job")), kMostOfName)},
                 {UserName(Member(lease, "uid"))},
                 {GpuNames(lease)},
                 {Size(Member(lease, "memory_request_bytes"))},
                 {Size(Member(lease, "memory_limit_bytes"))},
                 {Text(Member(lease, "class"))},
                 {share.empty() ? "-" : share},
                 {project.empty() ? "-" : project},
                 {std::to_string(List(lease, "sessions").size())}});
    }
    text = table.Show(screen);
  }
  for (const Json& gpu : List(answer, "gpus")) {
    text += fmt::format("gpu{}: {} of {} guaranteed\n", Text(Member(gpu, "index")),
                        Size(Member(gpu, "guaranteed_bytes")), Size(Member(gpu, "budget_bytes")));
  }
  return text;
}

Result<std::string> ListLeases(const LeaseOptions& options) {
  ASSIGN_OR_RETURN(wire::Channel channel, ConnectRunning());
  ASSIGN_OR_RETURN(const std::string answer, AskForJson(&channel, wire::Query{"leases"}));
  if (options.json) {
    ASSIGN_OR_RETURN(const std::string line, CompactJson(answer));
    return line + "\n";
  }
  ASSIGN_OR_RETURN(const Json leases, Parse(answer));
  return LeasesTable(leases, OwnScreen());
}

// What a line of the command needs, and does not say.
void CheckWords(const LeaseOptions& options) {
  const auto need = [&](bool has, const char* option) {
    if (!has) {
      throw CLI::ValidationError(
          "lease", fmt::format("`tandem lease {}` needs {}; `tandem help lease` has examples",
                               options.what, option));
    }
  };
  if (options.what == "list") return;
  need(!options.job.empty(), "--job");
  if (options.what != "create") return;
  need(!options.user.empty(), "--user");
  need(!options.gpus.empty(), "--gpu");
  need(!options.request.empty() || !options.limit.empty(), "--memory-request or --memory-limit");
}

void AddTerms(CLI::App* command, LeaseOptions* options) {
  command->add_option("--job", options->job, "The job's number or name, as the engine calls it")
      ->type_name("ID");
  command->add_option("--user", options->user, "The user of the job's processes")
      ->type_name("USER");
  command->add_option("--gpu", options->gpus, "A GPU of the job, such as gpu0; again for more")
      ->type_name("GPU")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command
      ->add_option("--memory-request", options->request,
                   "Memory on each GPU that the job can count on")
      ->type_name("SIZE")
      ->check(usage::IsSize());
  command
      ->add_option("--memory-limit", options->limit,
                   "Memory that the job may allocate on each GPU; default: the request")
      ->type_name("SIZE")
      ->check(usage::IsLimit());
  command->add_flag("--oversubscribe", options->oversubscribe,
                    "Allow a limit above the memory of the GPU");
  command->add_option("--compute-share", options->share, "Share of the time, such as 2 or 30%")
      ->type_name("SHARE")
      ->check(IsShare());
  command->add_option("--class", options->of_class, "Class of the work; default: interactive")
      ->type_name("CLASS")
      ->check(usage::IsOneOf({std::begin(core::kClassNames), std::end(core::kClassNames)}));
  command->add_option("--name", options->name, "Name in listings; default: the job, or job-17")
      ->type_name("NAME")
      ->check(usage::IsRunName());
  command->add_option("--project", options->project, "Project in the accounts")
      ->type_name("PROJECT");
  command
      ->add_option("--cgroup", options->cgroup,
                   "The job's cgroup, as in /proc/PID/cgroup: only its processes may use the "
                   "lease, which ends with it")
      ->type_name("PATH");
}

}  // namespace

int ManageLease(const LeaseOptions& options) {
  const Result<GpuChoice> gpu = ChooseGpu(std::nullopt);
  if (!gpu.ok()) return Fail(gpu.error());
  if (options.what == "follow") return FollowStopSignals(options.job);
  const Result<std::string> text = options.what == "create" ? CreateLease(options, gpu->gpu)
                                   : options.what == "environment"
                                       ? ShowEnvironment(options, gpu->gpu)
                                   : options.what == "end" ? EndLease(options)
                                                           : ListLeases(options);
  return text.ok() ? Print(*text) : Fail(text.error());
}

void AddLease(CLI::App* app, std::function<int()>* action) {
  auto options = std::make_shared<LeaseOptions>();
  CLI::App* command =
      app->add_subcommand("lease", "Lend GPUs to a job of a cluster engine, or end that");
  command->add_option("action", options->what, "create, end, list, environment or follow")
      ->required()
      ->type_name("ACTION")
      ->check(usage::IsOneOf({"create", "end", "list", "environment", "follow"}));
  AddTerms(command, options.get());
  CLI::Option* json = command->add_flag("--json", options->json, "One JSON object on one line");
  command
      ->add_flag("--environment", options->environment,
                 "Print the variables that the job's processes need, one on each line")
      ->excludes(json);
  command->footer(
      "Cluster engines such as Slurm call this on each node; docs/leases.md says how. Without\n"
      "--json or --environment, create prints the lease's token: a process with TANDEM_RUN=TOKEN\n"
      "belongs to the job. The same lease again gives the same token.\n"
      "environment prints the variables of a lease that exists.\n"
      "follow runs among the job's processes until its standard input ends. On SIGTSTP it "
      "suspends\n"
      "the job, whose memory leaves the GPU before the engine stops it; on SIGCONT it resumes it.\n"
      "The requests of all leases never exceed the memory of a GPU; limits may. Memory above the\n"
      "GPU waits in host memory. Only root or the daemon's owner can create and end leases. A\n"
      "lease outlives the daemon.\n"
      "TANDEM_GPU selects the kind of GPU.\n"
      "\n"
      "Examples:\n"
      "  tandem lease create --job 17 --user anna --gpu gpu0 --memory-request 8G\n"
      "  tandem lease create --job 18 --user 1000 --gpu 0 --gpu 1 --memory-request 4G \\\n"
      "    --memory-limit 20G --class batch --project vision --environment\n"
      "  tandem lease list\n"
      "  tandem lease end --job 17");
  command->callback([=] {
    CheckWords(*options);
    *action = [=] { return ManageLease(*options); };
  });
}

}  // namespace tandem::cli
