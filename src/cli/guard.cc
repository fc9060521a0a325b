#include "src/cli/guard.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "src/base/unique_fd.h"

namespace tandem::cli {
namespace {

constexpr std::array kPassedOn = {SIGHUP,  SIGINT,  SIGQUIT,  SIGTERM, SIGUSR1, SIGUSR2,
                                  SIGALRM, SIGCONT, SIGWINCH, SIGTSTP, SIGTTIN, SIGTTOU};
constexpr int kRetryMs = 10;  // a program may be waiting for the daemon to know its limit

// What `tandem run` was started with, and the program shall be.
struct Inherited {
  sigset_t mask;
  struct sigaction on_child;  // ignored: the program's end would not be seen
  struct sigaction on_pipe;   // not ignored: a reader that goes away could end us
};

Error CannotExecute(const Program& program, int error) {
  if (error == ENOENT && access(program.file.c_str(), F_OK) == 0) {
    return Error{ErrorCode::kNotFound, program.file + ": the interpreter it names is not there"};
  }
  return Error{error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kRefused,
               program.file + ": " + std::strerror(error)};
}

// A failed exec arrives through `failure` as its errno.
[[noreturn]] void BecomeProgram(const Program& program, const Inherited& inherited, pid_t parent,
                                int failure) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) raise(SIGKILL);  // the guard died before the line above
  sigaction(SIGCHLD, &inherited.on_child, nullptr);
  sigaction(SIGPIPE, &inherited.on_pipe, nullptr);
  sigprocmask(SIG_SETMASK, &inherited.mask, nullptr);
  Become(program);
  const int error = errno;
  if (write(failure, &error, sizeof error) < 0) _exit(126);
  _exit(127);
}

Result<pid_t> Start(const Program& program, const Inherited& inherited) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    return Error{ErrorCode::kFailed, std::string("pipe: ") + std::strerror(errno)};
  }
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return Error{ErrorCode::kFailed, std::string("fork: ") + std::strerror(errno)};
  if (pid == 0) BecomeProgram(program, inherited, parent, writer.get());
  writer.Reset();
  int error = 0;
  ssize_t size;
  do {
    size = read(reader.get(), &error, sizeof error);  // ends when the program has been executed
  } while (size < 0 && errno == EINTR);
  if (size != sizeof error) return pid;
  waitpid(pid, nullptr, 0);
  return CannotExecute(program, error);
}

bool IsJobControl(int signal) {
  return signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
}

// True once the program ended. Where the terminal stopped it this process stops, too: the shell
// waits for that. Other children, such as a daemon, are left to the process that started them.
bool Reap(pid_t pid, int* wait_status, const Companion& companion) {
  while (waitpid(pid, wait_status, WNOHANG | WUNTRACED) == pid) {
    if (companion.on_pause != nullptr) companion.on_pause();
    if (!WIFSTOPPED(*wait_status)) return true;
    if (IsJobControl(WSTOPSIG(*wait_status))) raise(SIGSTOP);
  }
  return false;
}

void PassOnSignals(int signals, pid_t pid, const Companion& companion) {
  signalfd_siginfo info;
  while (read(signals, &info, sizeof info) == sizeof info) {
    const bool from_process = info.ssi_code == SI_USER || info.ssi_code == SI_QUEUE;
    if (info.ssi_signo != SIGCHLD && from_process) kill(pid, static_cast<int>(info.ssi_signo));
    if (info.ssi_signo == SIGINT && companion.on_interrupt != nullptr) companion.on_interrupt();
  }
}

int Watch(pid_t pid, int signals, Companion companion) {
  int wait_status = 0;
  while (!Reap(pid, &wait_status, companion)) {
    std::array<pollfd, 2> watched = {{{signals, POLLIN, 0}, {companion.fd, POLLIN, 0}}};
    const bool retry = companion.fd < 0 && companion.on_retry_time != nullptr;
    const int ready = poll(watched.data(), watched.size(), retry ? kRetryMs : -1);
    if (ready == 0 && retry) companion.fd = companion.on_retry_time();
    if (ready <= 0) continue;
    PassOnSignals(signals, pid, companion);
    if (watched[1].revents != 0) companion.fd = companion.on_readable();
  }
  return wait_status;
}

}  // namespace

Error Become(const Program& program) {
  const std::vector<char*> arguments = ExecPointers(program.arguments);
  const std::vector<char*> environment = ExecPointers(program.environment);
  execvpe(program.file.c_str(), arguments.data(), environment.data());
  return CannotExecute(program, errno);
}

Result<int> RunGuarded(const Program& program, Companion companion) {
  sigset_t handled;
  sigemptyset(&handled);
  for (const int signal : kPassedOn) sigaddset(&handled, signal);
  sigaddset(&handled, SIGCHLD);
  Inherited before;
  sigprocmask(SIG_BLOCK, &handled, &before.mask);
  struct sigaction by_default {};
  by_default.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &by_default, &before.on_child);
  struct sigaction ignored {};
  ignored.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignored, &before.on_pipe);
  const UniqueFd signals(signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
  Result<int> result = [&]() -> Result<int> {
    if (!signals) return Error{ErrorCode::kFailed, std::string("signalfd: ") + strerror(errno)};
    ASSIGN_OR_RETURN(const pid_t pid, Start(program, before));
    return Watch(pid, signals.get(), std::move(companion));
  }();
  sigaction(SIGCHLD, &before.on_child, nullptr);
  sigaction(SIGPIPE, &before.on_pipe, nullptr);
  sigprocmask(SIG_SETMASK, &before.mask, nullptr);
  return result;
}

void EndLike(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    // The program has left its own core file, if any.
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    const int number = WTERMSIG(wait_status);
    std::signal(number, SIG_DFL);
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, number);
    sigprocmask(SIG_UNBLOCK, &only, nullptr);
    raise(number);
  }
  std::exit(WEXITSTATUS(wait_status));
}

}  // namespace tandem::cli
