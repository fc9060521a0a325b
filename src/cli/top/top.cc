#include "src/cli/top/top.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <ctime>

#include "src/base/duration.h"
#include "src/base/json.h"
#include "src/cli/environment.h"
#include "src/cli/listing.h"
#include "src/cli/print.h"
#include "src/cli/top/controls.h"
#include "src/cli/top/frame.h"
#include "src/cli/top/screen.h"
#include "src/cli/top/source.h"

namespace tandem::cli {
namespace top {
namespace {

constexpr Duration kShortestInterval = Milliseconds(100);
constexpr int kEndedBySignal = 128;

double UnixNow() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Signals that end the view, as events in their order with keys.
class EndSignals {
 public:
  EndSignals() {
    sigset_t ends;
    sigemptyset(&ends);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ends, signal);
    sigprocmask(SIG_BLOCK, &ends, &before_);
    fd_ = UniqueFd(signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~EndSignals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  int fd() const { return fd_.get(); }
  // That has come; 0: none.
  int Take() {
    signalfd_siginfo info;
    return read(fd_.get(), &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo)
                                                                : 0;
  }

 private:
  sigset_t before_;
  UniqueFd fd_;
};

int MillisecondsUntil(Instant instant) {
  const int64_t ns = (instant - MonotonicNow()).ns;
  return static_cast<int>(std::clamp<int64_t>(ns / 1000000 + 1, 0, 3600000));
}

// Until a key or a signal is there, a new size, or that time.
void Await(const EndSignals& signals, Instant until) {
  std::array<pollfd, 2> events = {{{STDIN_FILENO, POLLIN, 0}, {signals.fd(), POLLIN, 0}}};
  poll(events.data(), events.size(), MillisecondsUntil(until));
}

bool InputEnded() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return poll(&input, 1, 0) == 1 && (input.revents & (POLLHUP | POLLERR)) != 0;
}

int Live(TerminalScreen* screen, EndSignals* signals, Duration interval, bool unicode) {
  Model model;
  View view;
  Source source;
  Controls controls(&view);
  Instant next = MonotonicNow();
  for (;;) {
    if (MonotonicNow() >= next) {
      if (!view.paused) source.Refresh(&model);
      next = MonotonicNow() + interval;
    }
    screen->Show(Draw(model, view, {screen->columns(), screen->rows(), unicode, UnixNow()}));
    Await(*signals, next);
    if (const int signal = signals->Take(); signal != 0) return kEndedBySignal + signal;
    if (InputEnded()) return kEndedBySignal + SIGHUP;
    for (int key; (key = screen->NextKey()) >= 0;) {
      const Effect effect = controls.Press(key, model);
      if (effect.quit) return 0;
      if (!effect.order.has_value()) continue;
      view.message = source.Give(*effect.order);
      next = MonotonicNow();  // show the result
    }
  }
}

std::string TextOf(const Model& model, const Screen& screen, bool unicode, bool json) {
  if (json) return *CompactJson(JsonText(model.ToJson())) + "\n";
  constexpr size_t kColumns = 100;  // of what is no terminal
  const size_t columns = screen.columns != 0 ? screen.columns : kColumns;
  return ShowFrame(Draw(model, {}, {columns, 0, unicode, UnixNow()}), screen.colours);
}

// A rate needs two answers. Without a daemon there is nothing to wait for.
int Write(const TopOptions& options, EndSignals* signals, Duration interval) {
  const bool unicode = ShowsUnicode();
  const bool once = options.once || !options.json;
  Model model;
  Source source;
  source.Refresh(&model);
  for (;;) {
    if (!once || model.lost().empty()) {
      pollfd event{signals->fd(), POLLIN, 0};
      poll(&event, 1, MillisecondsUntil(MonotonicNow() + interval));
      if (const int signal = signals->Take(); signal != 0) return kEndedBySignal + signal;
      source.Refresh(&model);
    }
    const int status = Print(TextOf(model, OwnScreen(), unicode, options.json));
    if (once || status != 0) return status;
  }
}

}  // namespace
}  // namespace top

int Top(const TopOptions& options) {
  if (const auto gpu = ChooseGpu(options.gpu); !gpu.ok()) return Fail(gpu.error());
  const Result<Duration> asked = ParseDuration(options.interval);
  if (!asked.ok()) return Fail(asked.error());
  const Duration interval = std::max(*asked, top::kShortestInterval);
  top::EndSignals signals;
  const bool unicode = top::ShowsUnicode();
  std::unique_ptr<top::TerminalScreen> screen;
  if (!options.once && !options.json) screen = top::TerminalScreen::Open(OwnScreen().colours);
  if (screen == nullptr) return top::Write(options, &signals, interval);
  return top::Live(screen.get(), &signals, interval, unicode);
}

}  // namespace tandem::cli
