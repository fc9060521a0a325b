#include "src/cli/run.h"

#include <fmt/core.h>

#include <filesystem>

#include "src/base/bytes.h"
#include "src/base/layout.h"
#include "src/cli/daemon.h"
#include "src/cli/environment.h"
#include "src/cli/guard.h"
#include "src/cli/print.h"
#include "src/cli/program.h"
#include "src/cli/wait_display.h"
#include "src/wire/open_runs.h"
#include "src/wire/runtime_dir.h"

namespace tandem::cli {
namespace {

constexpr Duration kFirstPause = Milliseconds(100);
constexpr Duration kLongestPause = Seconds(10);
constexpr int kDaemonsTried = 20;  // of those that go away before they have opened the run

int FailToExecute(const Error& error) {
  const int status = error.code == ErrorCode::kNotFound  ? kExitNotFound
                     : error.code == ErrorCode::kRefused ? kExitNotExecutable
                                                         : kExitOwnError;
  return Fail(status, error.message);
}

// What `tandem run` was asked to do, once checked.
struct Plan {
  Program program;
  Layout layout;
  Gpu gpu = Gpu::kSoft;
  Bytes limit;                     // 0: the budget
  std::optional<uint64_t> within;  // the run this one is started in
};

// The run that this process was started in, while it lasts. A process of it, such as a terminal
// multiplexer, may outlive the run and still hand TANDEM_RUN down.
Result<std::optional<uint64_t>> SurroundingRun(const Environment& environment) {
  const std::optional<std::string> run = Lookup(environment, "TANDEM_RUN");
  if (!run || run->empty()) return std::optional<uint64_t>();
  char* end = nullptr;
  const uint64_t number = std::strtoull(run->c_str(), &end, 10);
  if (*end != 0) {
    return Error{ErrorCode::kInvalid, "TANDEM_RUN is set, but not by `tandem run`: unset it"};
  }
  return wire::IsOpenRun(number) ? std::optional<uint64_t>(number) : std::nullopt;
}

Status CheckShareable(const Plan& plan, const std::string& path) {
  const auto why = WhyNotShareable(plan.program.file, path, getuid());
  if (!why) return {};
  return Error{ErrorCode::kInvalid,
               fmt::format("{}, so it cannot be shared this way: the dynamic loader takes no "
                           "library into it. `tandem run --unshared` runs it beside Tandem; its "
                           "GPU memory then stays on the card",
                           *why)};
}

// Says where the software GPU was chosen without being asked for. It computes slowly: a driver that
// is broken must not end there.
Result<Gpu> GpuOf(const RunOptions& options) {
  ASSIGN_OR_RETURN(const GpuChoice choice, ChooseGpu(options.gpu));
  if (!choice.broken.empty()) {
    return Error{ErrorCode::kFailed,
                 fmt::format("NVIDIA's driver is installed and does not work ({}); repair it, or "
                             "use the slow software GPU: `tandem run --gpu soft`",
                             choice.broken)};
  }
  if (choice.gpu == Gpu::kSoft && choice.by_machine && !options.quiet) {
    Fail(0,
         "no NVIDIA driver was found: this run uses the software GPU, which is slow; `--gpu soft` "
         "hides this line");
  }
  return choice.gpu;
}

Result<Plan> MakePlan(const RunOptions& options, std::string file) {
  Plan plan;
  plan.program = {std::move(file), options.command, OwnEnvironment()};
  const Environment& environment = plan.program.environment;
  ASSIGN_OR_RETURN(plan.layout, OwnLayout());
  ASSIGN_OR_RETURN(plan.gpu, GpuOf(options));
  if (options.memory) {
    ASSIGN_OR_RETURN(plan.limit, ParseBytes(*options.memory));
  }
  if (options.unshared) return plan;
  TRY(CheckShareable(plan, Lookup(environment, "PATH").value_or("/usr/bin:/bin")));
  ASSIGN_OR_RETURN(plan.within, SurroundingRun(environment));
  if (plan.within && (options.memory || !options.name.empty() || !options.of_class.empty())) {
    return Error{ErrorCode::kInvalid,
                 "this is inside of another `tandem run`, whose limit, name and class hold: leave "
                 "out --memory, --name and --class"};
  }
  SetDevicePriority(&plan.program.environment, options.of_class);
  return plan;
}

// Opens the run at the daemon and keeps it open: it lasts as long as the connection.
class OpenRun {
 public:
  OpenRun(std::optional<DaemonCommand> daemon, wire::RunBegin begin, bool quiet)
      : daemon_(wire::SocketPath(), std::move(daemon)), begin_(std::move(begin)), wait_(quiet) {}

  Result<uint64_t> Open() {
    ASSIGN_OR_RETURN(const wire::Message message, Begin());
    const auto* started = std::get_if<wire::RunStarted>(&message);
    if (started == nullptr) return Error{ErrorCode::kInvalid, "the daemon answered nonsense"};
    begin_.run = started->run;  // another daemon gets to know it by this
    // A daemon that has gone meanwhile shows as the connection's end; Reopen tells the next one.
    [[maybe_unused]] const Status sent = channel_.Send(wire::WatchWaits{begin_.run});
    return started->run;
  }

  // Where the daemon went away a new one is started: programs that still run find it. None of this
  // waits, since signals have to reach the program meanwhile.
  Companion AsCompanion() {
    return Companion{channel_.fd(), [this] { return OnReadable(); }, [this] { return Reopen(); },
                     [this] { OnInterrupt(); }, [this] { wait_.OnPause(); }};
  }

 private:
  // A daemon that was just leaving, being idle, or that dies, takes the connection with it; the
  // next one will do.
  Result<wire::Message> Begin() {
    for (int tried = 1;; ++tried) {
      ASSIGN_OR_RETURN(channel_, daemon_.Await());
      Result<wire::Message> answer = Ask(&channel_, begin_);
      const bool gone = !answer.ok() && answer.error().code == ErrorCode::kUnavailable;
      if (!gone || tried == kDaemonsTried) return answer;
    }
  }

  int OnReadable() {
    for (;;) {
      const Result<wire::Message> message = channel_.Receive(Duration());
      if (!message.ok()) {
        if (message.error().code == ErrorCode::kNotFound) return channel_.fd();
        if (message.error().code == ErrorCode::kUnavailable) return Reopen();
        return WithoutDaemon(message.error().message);
      }
      const auto* refused = std::get_if<wire::Refused>(&*message);
      if (refused != nullptr) return WithoutDaemon("it refuses this run: " + refused->reason);
      if (const auto* changed = std::get_if<wire::RunChanged>(&*message)) {
        begin_.limit_bytes = changed->limit_bytes;
        begin_.suspended = changed->suspended;
      }
      if (const auto* waiting = std::get_if<wire::Waiting>(&*message)) wait_.OnWaiting(*waiting);
      warned_ = false;
      pause_ = kFirstPause;
    }
  }

  void OnInterrupt() {
    if (wait_.OnInterrupt() && channel_) {
      [[maybe_unused]] const Status sent =
          channel_.Send(wire::EndWait{begin_.run}, Duration());  // if not, the next SIGINT does
    }
  }

  int Reopen() {
    wait_.OnWaiting(wire::Waiting());
    channel_.Close();
    if (MonotonicNow() < not_before_) return -1;
    Result<wire::Channel> channel = daemon_.Try();
    if (!channel.ok()) return WithoutDaemon(channel.error().message);
    channel_ = std::move(*channel);
    // The answer comes when the daemon has time; where it does not come, the connection ends.
    const bool sent = channel_ && channel_.Send(begin_, Duration()).ok() &&
                      channel_.Send(wire::WatchWaits{begin_.run}, Duration()).ok();
    if (!sent) channel_.Close();
    return channel_.fd();
  }

  int WithoutDaemon(const std::string& why) {
    channel_.Close();
    if (!warned_) Fail(0, "the daemon is gone: " + why + "; trying on");
    warned_ = true;
    not_before_ = MonotonicNow() + pause_;
    pause_ = std::min(pause_ * 2, kLongestPause);
    return -1;
  }

  DaemonFinder daemon_;
  wire::RunBegin begin_;
  wire::Channel channel_;
  WaitDisplay wait_;
  bool warned_ = false;
  // A daemon that refuses the run, or cannot start, is left in peace for longer and longer.
  Duration pause_ = kFirstPause;
  Instant not_before_;
};

Error RunInside(Plan plan) {
  auto environment =
      SharedEnvironment(plan.program.environment, plan.layout, plan.gpu, *plan.within);
  if (!environment.ok()) return environment.error();
  plan.program.environment = std::move(*environment);
  return Become(plan.program);
}

Error RunUnshared(Plan plan) {
  auto environment = BareEnvironment(plan.program.environment, plan.layout, plan.gpu);
  if (!environment.ok()) return environment.error();
  plan.program.environment = std::move(*environment);
  return Become(plan.program);
}

int RunShared(Plan plan, const RunOptions& options) {
  const auto fail = [](const Error& error) { return Fail(kExitOwnError, error.message); };
  Result<std::optional<DaemonCommand>> daemon =
      OwnDaemon(plan.layout, plan.gpu, plan.program.environment);
  if (!daemon.ok()) return fail(daemon.error());
  const std::string program = std::filesystem::path(plan.program.arguments[0]).filename();
  OpenRun open_run(std::move(*daemon),
                   wire::RunBegin{.build = TANDEM_VERSION,
                                  .name = options.name,
                                  .program = program,
                                  .limit_bytes = plan.limit.count,
                                  .oversubscribes = options.oversubscribe,
                                  .of_class = options.of_class},
                   options.quiet);
  const Result<uint64_t> run = open_run.Open();
  if (!run.ok()) return fail(run.error());
  const Result<UniqueFd> mark = wire::MarkRunOpen(*run);
  if (!mark.ok()) return fail(mark.error());
  auto environment = SharedEnvironment(plan.program.environment, plan.layout, plan.gpu, *run);
  if (!environment.ok()) return fail(environment.error());
  SetRunName(&*environment, options.name.empty() ? program : options.name);
  plan.program.environment = std::move(*environment);
  const Result<int> wait_status = RunGuarded(plan.program, open_run.AsCompanion());
  if (!wait_status.ok()) return FailToExecute(wait_status.error());
  EndLike(*wait_status);
}

}  // namespace

int Run(const RunOptions& options) {
  const char* path = std::getenv("PATH");
  Result<std::string> file =
      FindProgram(options.command.at(0), path != nullptr ? path : "/usr/bin:/bin");
  if (!file.ok()) return FailToExecute(file.error());
  Result<Plan> plan = MakePlan(options, std::move(*file));
  if (!plan.ok()) return Fail(kExitOwnError, plan.error().message);
  if (options.unshared) return FailToExecute(RunUnshared(std::move(*plan)));
  if (plan->within) return FailToExecute(RunInside(std::move(*plan)));
  return RunShared(std::move(*plan), options);
}

}  // namespace tandem::cli
