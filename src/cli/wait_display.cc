#include "src/cli/wait_display.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "src/cli/fields.h"

namespace tandem::cli {
namespace {

WaitLine::Style OwnStyle(bool quiet) {
  if (quiet) return WaitLine::Style::kSilent;
  const char* const kind = std::getenv("TERM");
  const bool dumb = kind == nullptr || std::strcmp(kind, "dumb") == 0;
  return isatty(STDERR_FILENO) == 1 && !dumb ? WaitLine::Style::kLive : WaitLine::Style::kLines;
}

size_t Columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace

WaitDisplay::WaitDisplay(bool quiet)
    : line_(OwnStyle(quiet), [](uint64_t uid) { return UserName(uid); }) {}

void WaitDisplay::OnWaiting(const wire::Waiting& waiting) {
  Write(line_.OnWaiting(waiting, MonotonicNow(), Columns()));
}

void WaitDisplay::OnPause() {
  Write(line_.OnPause());
}

bool WaitDisplay::OnInterrupt() {
  bool end = false;
  Write(line_.OnInterrupt(Columns(), &end));
  return end;
}

// In the background the terminal is another program's.
void WaitDisplay::Write(const std::string& text) const {
  if (text.empty()) return;
  const bool live = line_.style() == WaitLine::Style::kLive;
  if (live && tcgetpgrp(STDERR_FILENO) != getpgrp()) return;
  pollfd entry{STDERR_FILENO, POLLOUT, 0};
  if (poll(&entry, 1, 0) != 1 || (entry.revents & POLLOUT) == 0) return;
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace tandem::cli
