#include "src/shim/os/end_by_signal.h"

#include <csignal>

namespace tandem::shim {

void EndBySignal(int signal) {
  struct sigaction found {};
  if (sigaction(signal, nullptr, &found) != 0) return;
  if ((found.sa_flags & SA_SIGINFO) == 0 && found.sa_handler == SIG_IGN) return;
  struct sigaction by_default {};
  by_default.sa_handler = SIG_DFL;
  sigaction(signal, &by_default, nullptr);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  raise(signal);
}

}  // namespace tandem::shim
