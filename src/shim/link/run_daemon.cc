#include "src/shim/link/run_daemon.h"

#include <cstdlib>

#include "src/base/time.h"
#include "src/shim/os/interruptible_wait.h"
#include "src/shim/os/log.h"
#include "src/wire/open_runs.h"

namespace tandem::shim {
namespace {

constexpr Duration kRunPause = Milliseconds(20);
constexpr Duration kFirstWordOfRun = Seconds(1);  // of waiting, and then
constexpr Duration kNextWordOfRun = Seconds(60);

bool IsAbsence(const Error& error) {
  return error.code == ErrorCode::kNotFound || error.code == ErrorCode::kUnavailable;
}

}  // namespace

uint64_t OwnRun() {
  const char* const text = std::getenv("TANDEM_RUN");
  const uint64_t run = text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
  return run != 0 && wire::IsOpenRun(run) ? run : 0;
}

bool AwaitRunDaemon(const std::function<Status()>& reached) {
  InterruptibleWait wait;
  Instant word_at = MonotonicNow() + kFirstWordOfRun;
  for (;;) {
    const Status status = reached();
    if (status.ok() || !IsAbsence(status.error()) || OwnRun() == 0) return true;
    if (const Instant now = MonotonicNow(); now >= word_at) {
      Log(LogLevel::kWarn, "%s; the program waits for the run's next daemon",
          status.error().message.c_str());
      word_at = now + kNextWordOfRun;
    }
    if (!wait.Pause(kRunPause)) return false;
  }
}

}  // namespace tandem::shim
