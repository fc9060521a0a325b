#include "src/shim/link/room_wait.h"

#include <cstdio>
#include <utility>

namespace tandem::shim {
namespace {

constexpr Duration kNotice = Seconds(1);  // a hand-over may take as long

std::string InSeconds(Duration duration) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g s", duration.seconds());
  return text;
}

}  // namespace

std::optional<std::string> RoomWait::OnPending(Instant now, bool counts, Duration bound) {
  if (told_) return std::nullopt;
  if (!counts) since_ = now;
  if (now - since_ < kNotice) return std::nullopt;
  told_ = true;
  std::string line = "waiting for room on the card for " + what_ +
                     ". Other programs need it: `tandem ps` shows them.";
  if (bound > Duration()) {
    line += " If they go on needing it for " + InSeconds(bound) +
            ", this program is told that memory is out.";
  }
  return line + " It goes on when one of them ends, frees memory or is suspended" +
         (smaller_ ? "; a smaller size may fit now" : "");
}

std::optional<std::string> RoomWait::OnRefused(Instant now) const {
  if (!told_) return std::nullopt;
  return "there was no room on the card for " + what_ + " within " + InSeconds(now - since_) +
         ", so this program is told that memory is out (`tandemd --fixed-wait` sets how long it "
         "may "
         "wait)";
}

}  // namespace tandem::shim
