#include "src/cli/wait_line.h"

#include <fmt/core.h>

#include <utility>

#include "src/base/text.h"
#include "src/cli/table.h"

namespace tandem::cli {
namespace {

constexpr const char* kErase = "\r\x1b[K";
// In a log, a program that waits once in each step shall not fill it.
constexpr Duration kNextTold = Seconds(60);

std::string About(Duration duration) {
  const int64_t seconds = duration.ns / 1000000000;
  if (seconds < 1) return "soon";
  if (seconds < 120) return fmt::format("about {} s", seconds);
  if (seconds < 7200) return fmt::format("about {} min", seconds / 60);
  return fmt::format("about {} h", seconds / 3600);
}

std::string ForCode(const std::string& reason) {
  if (reason == "memory") return "others are still freeing memory";
  if (reason == "context") return "no room for one more context";
  if (reason == "fixed_memory") return "no room for memory that cannot be swapped";
  if (reason == "fixed_memory_of_others")
    return "others' memory that cannot be swapped is in the way";
  if (reason == "host_memory") return "no host memory is left for what it has allocated";
  if (reason == "foreign_memory") return "programs outside Tandem hold memory that it needs";
  if (reason == "daemon_restart") return "the daemon has just started";
  if (reason == "pause_of_others") return "it is opportunistic, and others work";
  return {};
}

}  // namespace

std::string WaitLine::Why() const {
  std::string why =
      waiting_->place != 0 ? Ordinal(waiting_->place) + " in line" : ForCode(waiting_->reason);
  if (waiting_->state == "restoring") why = "its memory is coming back";
  if (waiting_->expected_ms != wire::Waiting::kUnknown) {
    const auto expected = Milliseconds(static_cast<int64_t>(waiting_->expected_ms));
    why += (why.empty() ? "" : ", ") + About(expected);
  }
  if (waiting_->holders > 0) {
    const bool others = waiting_->holders > 1;
    why += (why.empty() ? "" : "; ") + EscapeText(waiting_->holder) +
           (others ? fmt::format(" and {} more hold it", waiting_->holders - 1) : " holds it");
  }
  return why;
}

std::string WaitLine::Words() const {
  const std::string gpu = EscapeText(waiting_->gpu);
  if (waiting_->state == "suspended" || waiting_->state == "suspending") {
    const uint64_t by = waiting_->suspended_by;
    return fmt::format("suspended{}; `tandem resume {}` continues it",
                       by == wire::Waiting::kUnknown ? "" : " by " + EscapeText(names_(by)),
                       EscapeText(waiting_->name));
  }
  const std::string why = Why();
  return "waiting for " + gpu + (why.empty() ? "" : ": " + why);
}

std::string WaitLine::Draw(size_t columns) {
  drawn_ = true;
  const char* const hint = interrupts_ == 0 ? "Ctrl-C to stop" : "Ctrl-C again ends it";
  const std::string line = "tandem: " + Words() + "; " + hint;
  // In the last column some terminals wrap.
  return kErase + (columns > 1 ? CutText(line, columns - 1) : line);
}

std::string WaitLine::OnWaiting(const wire::Waiting& waiting, Instant now, size_t columns) {
  if (waiting.state == "ended") {
    return OnPause() + fmt::format("tandem: {} is ended: it kept {} from others for {:.0f} s\n",
                                   EscapeText(waiting.name), EscapeText(waiting.gpu),
                                   static_cast<double>(waiting.waited_ms) / 1000);
  }
  if (waiting.state.empty()) {
    if (!waiting_.has_value()) return {};
    const std::string over = fmt::format("tandem: waited {:.0f} s for {}\n",
                                         (now - began_).seconds(), EscapeText(waiting_->gpu));
    const bool tell = told_;
    waiting_.reset();
    return style_ == Style::kLive ? OnPause() : tell ? over : "";
  }
  if (!waiting_.has_value()) {
    began_ = now - Milliseconds(static_cast<int64_t>(waiting.waited_ms));
    interrupts_ = 0;
    told_ = false;
  }
  waiting_ = waiting;
  if (style_ == Style::kSilent) return {};
  if (style_ == Style::kLive) return Draw(columns);
  if (told_ || (tells_.has_value() && now - *tells_ < kNextTold)) return {};
  told_ = true;
  tells_ = now;
  return "tandem: " + Words() + "\n";
}

std::string WaitLine::OnPause() {
  return std::exchange(drawn_, false) ? kErase : "";
}

std::string WaitLine::OnInterrupt(size_t columns, bool* end) {
  if (!waiting_.has_value()) return {};
  *end = ++interrupts_ >= 2;
  if (*end) return OnPause();
  if (style_ == Style::kLive) return Draw(columns);
  if (style_ == Style::kSilent) return {};
  return "tandem: the program still waits; another SIGINT ends it\n";
}

}  // namespace tandem::cli
