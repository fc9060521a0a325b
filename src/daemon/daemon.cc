#include "src/daemon/daemon.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "src/base/host_memory.h"
#include "src/core/host_limits.h"
#include "src/daemon/closing.h"
#include "src/daemon/container_devices.h"
#include "src/daemon/devices.h"
#include "src/daemon/lease_file.h"
#include "src/daemon/log.h"
#include "src/daemon/memfd_pages.h"
#include "src/daemon/options.h"
#include "src/daemon/privileges.h"
#include "src/daemon/recording.h"
#include "src/daemon/server.h"
#include "src/daemon/service_manager.h"
#include "src/daemon/session_table.h"
#include "src/daemon/spill_store.h"
#include "src/wire/channel.h"
#include "src/wire/runtime_dir.h"

namespace tandem::daemon {
namespace {

uint64_t RandomToken() {
  uint64_t token = 0;
  if (getrandom(&token, sizeof(token), 0) != sizeof(token)) return 0;
  return token >> 11;  // below 2^53: exact wherever it is read as a number
}

// What the clock on the wall shows at instant 0 of MonotonicNow, as both go now.
int64_t UnixTimeAtZero() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * int64_t{1000000000} + now.tv_nsec - MonotonicNow().ns;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Result<std::string> DevicesJson(const Options& options) {
  if (options.devices_json.empty()) return RunProbe();
  std::string text = ReadFile(options.devices_json);
  if (text.empty()) return Error{ErrorCode::kNotFound, "cannot read " + options.devices_json};
  return text;
}

// A daemon that starts while the card is full cannot measure what a context costs: it goes by what
// the last one that could has left behind.
Result<std::vector<service::GpuInfo>> FindDevices(const Options& options,
                                                  const std::string& socket) {
  ASSIGN_OR_RETURN(const std::string json, DevicesJson(options));
  const std::string kept = std::filesystem::path(socket).replace_extension(".json");
  if (IsComplete(json)) {
    std::ofstream(kept + ".new") << json;
    std::error_code ignored;  // at worst the next one goes by an estimate
    std::filesystem::rename(kept + ".new", kept, ignored);
  }
  return ParseDevices(json, options.reserved_contexts, ReadFile(kept));
}

// A daemon without a log of its own ends with its terminal, if it has one.
Result<UniqueFd> BlockSignals(const Options& options) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  if (!options.log_file.empty() || isatty(STDERR_FILENO) == 0) sigaddset(&set, SIGHUP);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  UniqueFd signals(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals) return Error{ErrorCode::kFailed, "signalfd"};
  return signals;
}

// A session takes up to four descriptors, and root's daemon may serve many users, none of whom
// shall be able to use up the others'.
void RaiseDescriptorLimit() {
  constexpr rlim_t kEnough = 65536;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t allowed = limit.rlim_max;
  limit.rlim_cur = limit.rlim_max = std::max(allowed, kEnough);
  if (setrlimit(RLIMIT_NOFILE, &limit) == 0) return;  // only root may
  limit.rlim_cur = limit.rlim_max = allowed;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Null where it cannot be had: the daemon works without.
std::unique_ptr<SessionTable> OpenSessionTable(const std::string& socket) {
  const std::string path = std::filesystem::path(socket).replace_extension(".sessions");
  Result<std::unique_ptr<SessionTable>> table = SessionTable::Open(path);
  if (table.ok()) return *std::move(table);
  spdlog::warn("a daemon after this one will not know the sessions of this one: {}",
               table.error().message);
  return nullptr;
}

// REQUIRES: the store lives as long as the service.
service::Spill SpillIn(service::Spill spill, SpillStore* store) {
  spill.available = [store] { return store->available(); };
  spill.ask = [store](uint64_t connection, const service::SpillOwner& owner, unsigned uid,
                      unsigned gid) {
    return store->Ask(connection, owner, uid, gid, MonotonicNow());
  };
  spill.end = [store](int pid) { store->End(pid, MonotonicNow()); };
  return spill;
}

// REQUIRES: the directory is there.
Result<std::unique_ptr<Server>> PrepareThere(const Options& options) {
  // Before the probe: two at once would each take the other's contexts for foreign memory.
  ASSIGN_OR_RETURN(Listener listener, Listener::Claim(wire::SocketPath()));
  service::ServiceConfig config;
  ASSIGN_OR_RETURN(config.gpus, FindDevices(options, listener.path()));
  TRY(DropPrivileges());  // the driver's library may need root's to load its modules
  config.version = TANDEM_VERSION;
  config.socket = listener.path();
  config.pid = getpid();
  config.uid = geteuid();
  config.started = MonotonicNow();
  config.random_token = &RandomToken;
  config.unix_ns_at_zero = &UnixTimeAtZero;
  config.note = [](const std::string& line) { spdlog::info("{}", line); };
  config.turns = options.turns;
  config.policy = options.policy;
  config.fixed_wait = options.fixed_wait;
  config.longest_block = options.longest_block;
  config.host_memory =
      options.host_memory.value_or(core::HostLimits::Measured(AvailableHostMemory()));
  config.host_memory_measured = !options.host_memory.has_value();
  config.shares_host_memory = wire::IsEverybodys(wire::RuntimeDir());
  config.available_host_memory = [] { return AvailableHostMemory(); };
  std::unique_ptr<SpillStore> spill;
  if (options.spill.limit != Bytes()) {
    ASSIGN_OR_RETURN(spill, SpillStore::Open(options.spill.directory, options.spill.limit));
    config.spill = SpillIn(options.spill, spill.get());
  }
  config.let_go = &CloseElsewhere;
  config.measures = options.devices_json.empty();  // else the cards are not there
  std::map<int, UniqueFd> processes;
  if (std::unique_ptr<SessionTable> table = OpenSessionTable(listener.path()); table != nullptr) {
    processes = table->TakeProcesses();
    config.saved = std::move(table);
  }
  KeepLeases(listener.path(), &config);
  config.leases_only = options.leases_only;
  if (options.chaos) {
    config.chaos_seed = options.seed.value_or(RandomToken());
    spdlog::warn("chaos: the card changes hands at random; for the same again: TANDEM_SEED={}",
                 *config.chaos_seed);
  } else if (options.seed.has_value()) {
    spdlog::warn("the seed {} is for nothing: it is that of --chaos", *options.seed);
  }
  for (const service::GpuInfo& gpu : config.gpus) {
    const Bytes budget = service::BudgetOf(gpu, gpu.foreign);
    spdlog::info("GPU {} {} \"{}\": {} of {} to share, a context costs {}", gpu.index, gpu.uuid,
                 service::Printable(gpu.name), FormatBytes(budget), FormatBytes(gpu.card),
                 FormatBytes(gpu.context));
  }
  if (const std::string note = wire::DisplacedNote(); !note.empty()) spdlog::warn("{}", note);
  spdlog::info("{} of the host's memory for what does not fit on the cards",
               FormatBytes(config.host_memory));
  if (config.spill.limit != Bytes()) {
    spdlog::info("{} more in {}", FormatBytes(config.spill.limit),
                 service::Printable(config.spill.directory));
  }
  ASSIGN_OR_RETURN(UniqueFd signals, BlockSignals(options));
  RecordHistory(options, &config);
  // Also without the option: those who were served here before go on looking for it here.
  TRY(listener.Listen(wire::IsEverybodys(wire::RuntimeDir())));
  if (!options.cdi.empty()) OfferToContainers(options.cdi, listener.path(), config.gpus);
  std::unique_ptr<Meter> meter;
  if (config.measures) meter = std::make_unique<Meter>();
  auto service =
      std::make_unique<service::Service>(std::move(config), std::make_unique<MemfdPageMaker>());
  ServerLimits limits;
  limits.exit_when_idle = options.exit_when_idle;
  return Server::Make(std::move(listener), std::move(signals), std::move(service), limits,
                      std::move(processes), std::move(meter), std::move(spill));
}

Result<std::unique_ptr<Server>> Prepare(const Options& options) {
  if (!options.everybody) {
    TRY(wire::MakeRuntimeDir());
    return PrepareThere(options);
  }
  const bool was_everybodys = wire::IsEverybodys(wire::RuntimeDir());
  TRY(wire::MakeEverybodysDir());
  auto server = PrepareThere(options);
  // Else all would look there for a daemon, and start none of their own.
  if (!server.ok() && !was_everybodys) wire::CloseEverybodysDir();
  return server;
}

// In the parent: waits until the child can be connected to, and ends. Returns in the child only.
UniqueFd GoToBackground() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  UniqueFd reader(ends[0]), writer(ends[1]);
  const pid_t child = fork();
  if (child != 0) {
    writer.Reset();
    char ready = 0;
    if (child > 0 && read(reader.get(), &ready, 1) == 1) _exit(0);
    int status = 0;
    const bool exited = child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status);
    _exit(exited ? WEXITSTATUS(status) : 1);
  }
  setsid();
  return writer;
}

// The child lets go of the terminal once nothing can go wrong any more.
void LeaveTerminal(const UniqueFd& ready) {
  UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null.get(), fd);
  if (chdir("/") != 0 || write(ready.get(), "1", 1) != 1)
    spdlog::warn("the command that started the daemon has ended");
}

// Opens the log anew: another program may have moved it.
void Reload(const Options& options, const ServiceManager& manager) {
  manager.Tell("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(MonotonicNow().ns / 1000));
  const Status log = OpenLog(options.log_file);
  if (log.ok()) {
    SpeakToLog(options.log_file);
    spdlog::info("the log is opened again");
  } else {
    spdlog::error("the log stays as it is: {}", log.error().message);
  }
  manager.Tell("READY=1");
}

}  // namespace

int Main(int argc, char** argv) {
  const ParsedOptions parsed = ParseOptions(argc, argv);
  if (parsed.exit_status.has_value()) return *parsed.exit_status;
  const Options& options = parsed.options;
  if (options.probe) return PrintProbe();
  if (options.meter) return RunMeter();
  if (options.spill_keeper) return RunSpillKeeper();
  umask(077);  // no other user may read what it writes
  signal(SIGPIPE, SIG_IGN);
  const ServiceManager manager = ServiceManager::FromEnvironment();
  UniqueFd ready;
  if (options.daemonize) ready = GoToBackground();
  RaiseDescriptorLimit();
  const Status log = OpenLog(options.log_file);
  Result<std::unique_ptr<Server>> server =
      log.ok() ? Prepare(options) : Result<std::unique_ptr<Server>>(log.error());
  if (!server.ok()) {
    std::fprintf(stderr, "tandemd: %s\n", server.error().message.c_str());
    return server.error().code == ErrorCode::kUnavailable ? wire::kExitRunsAlready : 1;
  }
  if (ready) LeaveTerminal(ready);
  if (!ready && !options.log_file.empty()) SpeakToLog(options.log_file);
  ServerHooks hooks;
  hooks.on_hangup = [&] { Reload(options, manager); };
  hooks.beat = [&] { manager.Tell("WATCHDOG=1"); };
  hooks.beat_every = manager.heartbeat();
  (*server)->SetHooks(std::move(hooks));
  manager.Tell("READY=1");
  (*server)->Run();
  manager.Tell("STOPPING=1");
  return 0;
}

}  // namespace tandem::daemon
