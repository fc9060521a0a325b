#include "src/shim/os/interruptible_wait.h"

#include <poll.h>

#include <ctime>

namespace tandem::shim {
namespace {

constexpr int kEnds[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

}  // namespace

InterruptibleWait::InterruptibleWait() {
  sigset_t ends;
  sigemptyset(&ends);
  for (const int signal : kEnds) sigaddset(&ends, signal);
  pthread_sigmask(SIG_BLOCK, &ends, &before_);
  sigfillset(&pausing_);
  for (const int signal : kEnds) {
    if (sigismember(&before_, signal) == 0) sigdelset(&pausing_, signal);
  }
}

InterruptibleWait::~InterruptibleWait() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool InterruptibleWait::Pause(Duration pause) {
  const timespec length{pause.ns / 1000000000, pause.ns % 1000000000};
  return ppoll(nullptr, 0, &length, &pausing_) == 0;
}

}  // namespace tandem::shim
