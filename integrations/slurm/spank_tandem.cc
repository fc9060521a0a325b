// The SPANK plugin: --gpu-mem, --gpu-class and --gpu-share for srun, sbatch and salloc.
//
// Where it runs, and what it does there:
//   srun, sbatch, salloc   checks the options; Slurm carries them to the job's nodes
//   slurmd's prolog        creates the lease, as root, from what slurmctld has accepted
//   a step, before tasks   gives the tasks the lease's variables; says why there is no lease
//   a step, its tasks      SIGTSTP, which Slurm sends before SIGSTOP, does not stop them; a process
//                          beside them tells the daemon, which moves their memory off the GPU
//   slurmd's epilog        ends the lease
//
// A prolog that fails drains its node. So this one never does: it leaves its error in a file, and
// the job's first step tells the user.
//
// Threading: as Slurm calls it; one thread at a time.
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

extern "C" {
#include <slurm/slurm.h>
#include <slurm/spank.h>
}

#include "integrations/common/command.h"
#include "integrations/slurm/terms.h"

namespace tandem::slurm {
namespace {

namespace fs = std::filesystem;
using integrations::Command;
using integrations::Output;
using integrations::OwnTandem;
using integrations::StartAmong;

constexpr char kNoGpu[] =
    "Slurm gave the job no GPU. The administrator adds tandem.lua to job_submit.lua "
    "(integrations/slurm/README.md)";
constexpr char kNoLease[] =
    "the job was submitted without --gpu-mem. Give it to salloc or sbatch, which reserve the "
    "memory";

// Of the command, or of the step that this process serves.
bool has_memory_option = false;
Result<std::string> lease_variables = std::string();

int Complain(const std::string& message) {
  slurm_error("tandem: %s", message.c_str());
  return -1;
}

// For options: what Slurm calls with the value.
template <typename Check>
int Checked(const Check& check, const char* value) {
  const Status status = check(value == nullptr ? "" : value);
  return status.ok() ? 0 : Complain(status.error().message);
}

int CheckMemoryOption(int, const char* value, int) {
  const auto check = [](std::string_view text) -> Status {
    TRY(ParseMemory(text));
    return {};
  };
  has_memory_option = true;
  return Checked(check, value);
}
int CheckClassOption(int, const char* value, int) {
  return Checked(CheckClass, value);
}
int CheckShareOption(int, const char* value, int) {
  return Checked(CheckShare, value);
}

char memory_name[] = "gpu-mem", memory_value[] = "SIZE[:LIMIT]",
     memory_help[] =
         "share a GPU of each node: SIZE is reserved, up to LIMIT can be allocated "
         "(Tandem); such as 20G or 20G:40G";
char class_name[] = "gpu-class", class_value[] = "CLASS",
     class_help[] = "class of the work on the GPU: production, interactive, batch, opportunistic";
char share_name[] = "gpu-share", share_value[] = "SHARE",
     share_help[] = "share of the GPU's time, where its policy is fair; such as 2 or 30%";

spank_option memory_option = {memory_name, memory_value, memory_help, 1, 0, CheckMemoryOption};
spank_option class_option = {class_name, class_value, class_help, 1, 1, CheckClassOption};
spank_option share_option = {share_name, share_value, share_help, 1, 2, CheckShareOption};

// The option's value; empty where it was not given. In prolog and epilog.
std::string ValueOf(spank_t spank, spank_option* option) {
  char* value = nullptr;
  const bool given = spank_option_getopt(spank, option, &value) == ESPANK_SUCCESS;
  return given && value != nullptr ? value : "";
}

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string OfTask(spank_t spank, const char* name) {
  std::vector<char> value(64 << 10);
  const spank_err_t error = spank_getenv(spank, name, value.data(), static_cast<int>(value.size()));
  return error == ESPANK_SUCCESS ? std::string(value.data()) : std::string();
}

std::string JobId(spank_t spank) {
  uint32_t id = 0;
  spank_get_item(spank, S_JOB_ID, &id);
  return std::to_string(id);
}

Result<Settings> SettingsOf(int count, char** arguments) {
  return ParseSettings({arguments, arguments + count});
}

// As the administrator said, on this node.
Command TandemCommand(const Settings& settings) {
  Command command{settings.tandem.empty() ? OwnTandem() : settings.tandem, {}};
  const std::string node = Variable("SLURMD_NODENAME");
  for (const auto& [name, value] : settings.environment) {
    command.environment.push_back(name + "=" + Filled(value, {{'n', node}}));
  }
  return command;
}

// What is kept of a job between prolog, steps and epilog, beside the daemon's socket: "job" while
// it has a lease, "error" where it has none, "ended" where the daemon is to be told. tandem-health
// reads the names.
fs::path Kept(const Command& command, const std::string& what, const std::string& job) {
  constexpr std::string_view kName = "TANDEM_RUNTIME_DIR=";
  fs::path folder = "/run/tandem";
  for (const std::string& entry : command.environment) {
    if (entry.starts_with(kName)) folder = entry.substr(kName.size());
  }
  return folder / "slurm" / (what + "-" + job);
}

void Keep(const fs::path& file, const std::string& text) {
  std::error_code error;
  fs::create_directory(file.parent_path(), error);
  fs::permissions(file.parent_path(), fs::perms::owner_all, error);
  std::ofstream(file) << text;
}

// Whether it was there.
bool Forget(const fs::path& file) {
  std::error_code error;
  return fs::remove(file, error);
}

std::string Contents(const fs::path& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

// The daemon was away when these jobs ended.
void EndLate(const Command& command) {
  std::error_code error;
  const fs::path folder = Kept(command, "ended", "").parent_path();
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("ended-")) continue;
    const Result<std::string> ended =
        Output(command, {"lease", "end", "--job", name.substr(std::string_view("ended-").size())});
    if (ended.ok() || ended.error().message.find("has no lease") != std::string::npos) {
      Forget(entry.path());
    }
  }
}

// Slurm tells the prolog no QOS: this asks slurmctld. Empty: it does not answer, which the log
// says, or the job has none.
std::string QosOf(spank_t spank) {
  uint32_t id = 0;
  spank_get_item(spank, S_JOB_ID, &id);
  job_info_msg_t* jobs = nullptr;
  if (slurm_load_job(&jobs, id, SHOW_ALL) != SLURM_SUCCESS) {
    slurm_error("tandem: job %u: cannot ask slurmctld for its QOS", id);
    return {};
  }
  const bool known = jobs->record_count > 0 && jobs->job_array[0].qos != nullptr;
  const std::string qos = known ? jobs->job_array[0].qos : "";
  slurm_free_job_info_msg(jobs);
  return qos;
}

Status CreateLease(spank_t spank, const Settings& settings, const Command& command) {
  Job job;
  job.id = JobId(spank);
  job.uid = Variable("SLURM_JOB_UID");
  job.gpus = Variable("SLURM_JOB_GPUS");
  job.partition = Variable("SLURM_JOB_PARTITION");
  job.account = Variable("SLURM_JOB_ACCOUNT");
  job.node = Variable("SLURMD_NODENAME");
  job.of_class = ValueOf(spank, &class_option);
  job.share = ValueOf(spank, &share_option);
  if (settings.UsesQos()) job.qos = QosOf(spank);
  ASSIGN_OR_RETURN(job.memory, ParseMemory(ValueOf(spank, &memory_option)));
  if (job.gpus.empty()) return Error{ErrorCode::kRefused, kNoGpu};
  TRY(Output(command, LeaseWords(job, settings)));
  return {};
}

// The lease's variables, NAME=VALUE on each line.
Result<std::string> LeaseVariables(const std::string& job, const Command& command) {
  const Result<std::string> variables = Output(command, {"lease", "environment", "--job", job});
  if (variables.ok()) return variables;
  const std::string why = Contents(Kept(command, "error", job));
  if (!why.empty()) return Error{ErrorCode::kRefused, why};
  const bool no_lease = variables.error().message.find("has no lease") != std::string::npos;
  return no_lease ? Error{ErrorCode::kRefused, kNoLease} : variables.error();
}

// Lists of libraries keep what the user has in them.
Status GiveToTasks(spank_t spank, const std::string& variables) {
  std::istringstream lines(variables);
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = line.substr(0, equals);
    std::string value = line.substr(equals + 1);
    if (name == "LD_PRELOAD" || name == "LD_LIBRARY_PATH") {
      value = PutFirst(value, OfTask(spank, name.c_str()));
    }
    if (spank_setenv(spank, name.c_str(), value.c_str(), 1) != ESPANK_SUCCESS) {
      return Error{ErrorCode::kFailed, "Slurm does not take the variable " + name};
    }
  }
  return {};
}

}  // namespace
}  // namespace tandem::slurm

// What Slurm calls. Each has the arguments of the plugin's line in plugstack.conf.

#pragma GCC visibility push(default)
extern "C" {

extern const char plugin_name[] = "tandem";
extern const char plugin_type[] = "spank";
extern const unsigned int plugin_version = SLURM_VERSION_NUMBER;
extern const unsigned int spank_plugin_version = 1;

int slurm_spank_init(spank_t spank, int count, char** arguments) {
  using namespace tandem::slurm;
  const tandem::Result<Settings> settings = SettingsOf(count, arguments);
  if (!settings.ok()) return Complain("in plugstack.conf, " + settings.error().message);
  for (spank_option* option : {&memory_option, &class_option, &share_option}) {
    if (spank_option_register(spank, option) != ESPANK_SUCCESS) {
      return Complain(std::string("another plugin has the option --") + option->name);
    }
  }
  return 0;
}

int slurm_spank_job_prolog(spank_t spank, int count, char** arguments) {
  using namespace tandem::slurm;
  if (ValueOf(spank, &memory_option).empty()) return 0;
  const tandem::Result<Settings> settings = SettingsOf(count, arguments);
  if (!settings.ok()) return 0;  // slurm_spank_init has said so
  const Command command = TandemCommand(*settings);
  EndLate(command);
  Keep(Kept(command, "job", JobId(spank)), "");
  const tandem::Status created = CreateLease(spank, *settings, command);
  if (created.ok()) return 0;
  Forget(Kept(command, "job", JobId(spank)));
  Complain("job " + JobId(spank) + ": " + created.error().message);
  Keep(Kept(command, "error", JobId(spank)), created.error().message);
  return 0;
}

// As root, who sees all leases.
int slurm_spank_init_post_opt(spank_t spank, int count, char** arguments) {
  using namespace tandem::slurm;
  if (spank_remote(spank) != 1 || !has_memory_option) return 0;
  const tandem::Result<Settings> settings = SettingsOf(count, arguments);
  if (!settings.ok()) return Complain("in plugstack.conf, " + settings.error().message);
  const Command command = TandemCommand(*settings);
  lease_variables = LeaseVariables(JobId(spank), command);
  return 0;
}

// The tasks' environment does not exist before.
int slurm_spank_user_init(spank_t spank, int, char**) {
  using namespace tandem::slurm;
  if (!lease_variables.ok()) return 0;  // the tasks say why
  const tandem::Status given = GiveToTasks(spank, *lease_variables);
  if (!given.ok()) lease_variables = given.error();
  return 0;
}

// An error is told here: the user's standard error is there, and srun's exit status becomes 1.
// Where the hooks before it fail, srun ends with 0.
int slurm_spank_task_init(spank_t spank, int, char**) {
  using namespace tandem::slurm;
  if (!has_memory_option) return 0;
  std::signal(SIGTSTP, SIG_IGN);
  if (lease_variables.ok()) return 0;
  int task = 0;
  if (spank_get_item(spank, S_TASK_ID, &task) == ESPANK_SUCCESS && task != 0) return -1;
  return Complain(Variable("SLURMD_NODENAME") + ": " + lease_variables.error().message);
}

int slurm_spank_task_post_fork(spank_t spank, int count, char** arguments) {
  using namespace tandem::slurm;
  static bool follows = false;  // one for the tasks of a step
  if (follows || !has_memory_option || !lease_variables.ok()) return 0;
  const tandem::Result<Settings> settings = SettingsOf(count, arguments);
  pid_t task = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  if (!settings.ok() || spank_get_item(spank, S_TASK_PID, &task) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_UID, &uid) != ESPANK_SUCCESS ||
      spank_get_item(spank, S_JOB_GID, &gid) != ESPANK_SUCCESS) {
    return 0;
  }
  follows = true;
  const tandem::Status started = StartAmong(
      TandemCommand(*settings), {"lease", "follow", "--job", JobId(spank)}, task, uid, gid);
  if (!started.ok()) Complain("suspending the job will not move it: " + started.error().message);
  return 0;
}

int slurm_spank_job_epilog(spank_t spank, int count, char** arguments) {
  using namespace tandem::slurm;
  if (ValueOf(spank, &memory_option).empty()) return 0;
  const tandem::Result<Settings> settings = SettingsOf(count, arguments);
  if (!settings.ok()) return 0;
  const Command command = TandemCommand(*settings);
  // A job without a lease left its error.
  if (Forget(Kept(command, "error", JobId(spank)))) return 0;
  Keep(Kept(command, "ended", JobId(spank)), "");
  Forget(Kept(command, "job", JobId(spank)));
  EndLate(command);
  return 0;
}

}  // extern "C"
#pragma GCC visibility pop
