#include "src/cli/lease_follow.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "src/base/unique_fd.h"
#include "src/cli/daemon.h"
#include "src/cli/fields.h"
#include "src/cli/listing.h"
#include "src/cli/print.h"

namespace tandem::cli {
namespace {

constexpr int kDaemonRetryMs = 200;

// The lease's name in listings, which orders go by; empty where there is no lease.
std::string NameOfLease(wire::Channel* channel, const std::string& job) {
  const Result<std::string> answer = AskForJson(channel, wire::Query{"leases"});
  const Result<nlohmann::json> leases =
      answer.ok() ? Parse(*answer) : Result<nlohmann::json>(answer.error());
  if (!leases.ok()) return {};
  for (const nlohmann::json& lease : List(*leases, "leases")) {
    if (RawText(lease, "job") == job) return RawText(lease, "name");
  }
  return {};
}

// Whether the daemon has answered, be it with a refusal.
bool Order(const std::string& what, const std::string& job) {
  Result<wire::Channel> channel = ConnectRunning();
  if (!channel.ok()) return false;
  const std::string name = NameOfLease(&*channel, job);
  if (name.empty()) return false;
  const Result<std::string> answer = AskForJson(&*channel, wire::Control{what, name, 0, {}});
  return answer.ok() || answer.error().code != ErrorCode::kUnavailable;
}

// Takes what is there to read.
bool InputEnded() {
  char ignored[256];
  return read(STDIN_FILENO, ignored, sizeof(ignored)) <= 0;
}

}  // namespace

int FollowStopSignals(const std::string& job) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTSTP, SIGCONT, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) {
    sigaddset(&signals, number);
  }
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  const UniqueFd signal_fd(signalfd(-1, &signals, SFD_CLOEXEC));
  if (signal_fd.get() < 0) return Fail(1, std::string("signalfd: ") + std::strerror(errno));
  const char* wanted = nullptr;  // the order that is still to be given
  for (;;) {
    pollfd ready[] = {{signal_fd.get(), POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
    poll(ready, 2, wanted == nullptr ? -1 : kDaemonRetryMs);
    if (ready[1].revents != 0 && InputEnded()) return 0;
    signalfd_siginfo came{};
    if (ready[0].revents != 0 && read(signal_fd.get(), &came, sizeof(came)) == sizeof(came)) {
      if (came.ssi_signo == SIGTERM) return 0;
      if (came.ssi_signo == SIGTSTP) wanted = "suspend";
      if (came.ssi_signo == SIGCONT) wanted = "resume";
    }
    if (wanted != nullptr && Order(wanted, job)) wanted = nullptr;
  }
}

}  // namespace tandem::cli
