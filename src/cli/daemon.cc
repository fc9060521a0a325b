#include "src/cli/daemon.h"

#include <fmt/core.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <utility>

#include "src/wire/runtime_dir.h"

namespace tandem::cli {
namespace {

constexpr Duration kAnswerPatience = Seconds(10);
constexpr Duration kStartPatience = Seconds(20);
// Of a daemon that is not ours to start: it may be just coming back.
constexpr Duration kComeBackPatience = Seconds(2);
constexpr Duration kStartAgain = Milliseconds(500);
constexpr int kStartPollMs = 10;
// More than the daemon lets its own log grow to: only daemons that cannot start get beyond it.
constexpr off_t kMaxLogBytes = 2 << 20;
constexpr const char* kIdleSeconds = "300";

bool NobodyThere(const Error& error) {
  return error.code == ErrorCode::kNotFound || error.code == ErrorCode::kUnavailable;
}

Error VersionMismatch(const wire::Channel& channel, uint16_t daemon_version) {
  const Result<wire::Peer> peer = channel.GetPeer();
  const std::string pid = peer.ok() ? std::to_string(peer->pid) : "PID";
  const std::string theirs = daemon_version != 0 ? std::to_string(daemon_version) : "another one";
  // One of this version would understand them.
  const bool go_on = daemon_version >= wire::kOldestVersion && daemon_version < wire::kVersion;
  return Error{ErrorCode::kVersion,
               "the daemon (process " + pid + ") speaks protocol version " + theirs +
                   ", this tandem version " + std::to_string(wire::kVersion) + "; " +
                   (go_on ? "" : "once the programs under it have ended, ") + "restart it: `kill " +
                   pid + "`, and the next `tandem run` starts a new one" +
                   (go_on ? "; the programs under it go on" : "")};
}

// A failed fork or exec of the daemon shows as its exit with this status.
constexpr int kCannotExec = 127;

[[noreturn]] void BecomeDaemon(const std::vector<char*>& arguments, char* const* environment,
                               int null, int report) {
  setsid();
  dup2(null, STDIN_FILENO);
  dup2(report, STDOUT_FILENO);
  dup2(report, STDERR_FILENO);
  close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  // The daemon must not inherit the signals that this process blocks or ignores.
  for (int signal = 1; signal < NSIG; ++signal) std::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve(arguments[0], arguments.data(), environment);
  _exit(kCannotExec);
}

bool FoundAnother(int wait_status) {
  return WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == wire::kExitRunsAlready;
}

std::string ReadAll(int fd) {
  std::string text;
  std::array<char, 4096> part;
  for (ssize_t n; (n = pread(fd, part.data(), part.size(), static_cast<off_t>(text.size()))) > 0;) {
    text.append(part.data(), static_cast<size_t>(n));
  }
  return text;
}

// Why the daemon ended: what the software GPU lacks, else the daemon's own last line, else the
// last.
std::string ReasonIn(const std::string& text) {
  std::string last, own, cards;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) last = line;
    if (line.starts_with("tandemd: ")) own = line;
    if (line.starts_with("tandem software GPU: ")) cards = line;
  }
  if (!cards.empty()) return cards;
  return own.empty() ? last : own;
}

}  // namespace

Result<wire::Message> Ask(wire::Channel* channel, const wire::Message& request) {
  TRY(channel->Send(request));
  Result<wire::Message> answer = channel->Receive(kAnswerPatience);
  if (!answer.ok()) {
    if (answer.error().code == ErrorCode::kVersion) return VersionMismatch(*channel, 0);
    if (answer.error().code == ErrorCode::kNotFound) {
      return Error{ErrorCode::kFailed, "the daemon gave no answer in time"};
    }
    if (answer.error().code == ErrorCode::kInvalid) {
      return Error{ErrorCode::kFailed, fmt::format("whatever listens at {} is not tandemd: {}",
                                                   wire::SocketPath(), answer.error().message)};
    }
    return answer;
  }
  if (const auto* refused = std::get_if<wire::Refused>(&*answer)) {
    if (refused->code == static_cast<uint16_t>(wire::RefusalCode::kVersion)) {
      return VersionMismatch(*channel, refused->version);
    }
    return Error{ErrorCode::kRefused, refused->reason};
  }
  return answer;
}

Result<wire::Channel> ConnectRunning() {
  Result<wire::Channel> channel = wire::ConnectDaemon(wire::SocketPath());
  if (channel.ok()) return channel;
  const ErrorCode code = channel.error().code;
  if (code != ErrorCode::kNotFound && code != ErrorCode::kUnavailable) return channel;
  return Error{code,
               fmt::format("no daemon runs at {}, and so no program shares a GPU: start `tandemd`",
                           wire::SocketPath())};
}

Result<std::string> AskForJson(wire::Channel* channel, const wire::Message& request) {
  ASSIGN_OR_RETURN(const wire::Message message, Ask(channel, request));
  if (const auto* answer = std::get_if<wire::Answer>(&message)) return answer->json;
  return Error{ErrorCode::kFailed, "the daemon answered something else than asked"};
}

Result<std::string> Query(const std::string& what) {
  ASSIGN_OR_RETURN(wire::Channel channel, wire::ConnectDaemon(wire::SocketPath()));
  return AskForJson(&channel, wire::Query{what});
}

Result<std::optional<DaemonCommand>> OwnDaemon(const Layout& layout, Gpu gpu,
                                               Environment environment) {
  TRY(wire::MakeOwnDir());
  if (wire::RootStartsTheDaemon()) return std::optional<DaemonCommand>();
  DaemonCommand command;
  command.note = wire::DisplacedNote();
  command.log = wire::OwnFile(".log");
  command.arguments = {layout.daemon, "--exit-when-idle", kIdleSeconds, "--log", command.log};
  ASSIGN_OR_RETURN(command.environment, BareEnvironment(std::move(environment), layout, gpu));
  return std::optional(std::move(command));
}

Status DaemonFinder::Start() {
  if (!command_->note.empty() && !std::exchange(noted_, true)) {
    fmt::print(stderr, "tandem: {}\n", command_->note);
  }
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  const UniqueFd log(open(command_->log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log) {
    return Error{ErrorCode::kFailed, "cannot write " + command_->log + ": " + std::strerror(errno)};
  }
  struct stat info;
  if (fstat(log.get(), &info) == 0 && info.st_size > kMaxLogBytes && ftruncate(log.get(), 0) != 0) {
    return Error{ErrorCode::kFailed, "cannot empty " + command_->log};
  }
  answered_ = false;
  report_ = UniqueFd(memfd_create("tandemd", MFD_CLOEXEC));
  if (!report_) return Error{ErrorCode::kFailed, std::string("memfd: ") + std::strerror(errno)};
  const std::vector<char*> arguments = ExecPointers(command_->arguments);
  const std::vector<char*> environment = ExecPointers(command_->environment);
  const pid_t pid = fork();
  if (pid < 0) return Error{ErrorCode::kFailed, std::string("fork: ") + std::strerror(errno)};
  if (pid == 0) BecomeDaemon(arguments, environment.data(), null.get(), report_.get());
  pid_ = pid;
  return {};
}

Error DaemonFinder::DidNotStart(const std::string& how) const {
  const std::string said = ReadAll(report_.get());
  const UniqueFd log(open(command_->log.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  [[maybe_unused]] const ssize_t kept = write(log.get(), said.data(), said.size());
  const std::string why = ReasonIn(said);
  return Error{ErrorCode::kUnavailable, "the daemon " + how + (why.empty() ? "" : ": " + why) +
                                            " (its log: " + command_->log + ")"};
}

Error DaemonFinder::NobodyServes() const {
  return Error{ErrorCode::kUnavailable, "no daemon answers at " + socket_ +
                                            ", where root's daemon serves all users; as root, `" +
                                            kStartForAllUsers + "` starts one"};
}

Result<wire::Channel> DaemonFinder::Try() {
  Result<wire::Channel> channel = wire::ConnectDaemon(socket_);
  const bool answers = channel.ok() || !NobodyThere(channel.error());
  if (!command_.has_value()) return answers ? std::move(channel) : wire::Channel();
  int status = 0;
  const pid_t ended = pid_ == 0 ? 0 : waitpid(pid_, &status, WNOHANG);
  if (ended != 0) pid_ = 0;
  if (answers) {
    answered_ = true;
    return channel;
  }
  const bool failed = ended != 0 && !std::exchange(answered_, false);
  if (!failed) {
    if (pid_ == 0 && MonotonicNow() >= start_at_) TRY(Start());
    return wire::Channel();
  }
  start_at_ = MonotonicNow() + kStartAgain;
  // The other answers soon; or it fails, and then ours can say why. Where the system keeps no
  // status for us (SIGCHLD was ignored) that is as likely as anything.
  if (ended < 0 || FoundAnother(status)) return wire::Channel();
  if (WIFEXITED(status) && WEXITSTATUS(status) == kCannotExec) {
    return Error{ErrorCode::kUnavailable, "cannot execute the daemon, " + command_->arguments[0]};
  }
  return DidNotStart("ended at once");
}

Result<wire::Channel> DaemonFinder::Await() {
  const bool starts = command_.has_value();
  const Instant deadline = MonotonicNow() + (starts ? kStartPatience : kComeBackPatience);
  for (;;) {
    Result<wire::Channel> channel = Try();
    if (!channel.ok() || *channel) return channel;
    if (MonotonicNow() > deadline) {
      return starts ? DidNotStart("does not answer") : NobodyServes();
    }
    poll(nullptr, 0, kStartPollMs);
  }
}

}  // namespace tandem::cli
