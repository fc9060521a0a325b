// WaitLine: what `tandem run` says on standard error while its program waits for a GPU, and what
// Ctrl-C means meanwhile. On a terminal it is one line, kept current; elsewhere a line at the start
// of a wait and one at its end.
//
// A program with a handler for SIGINT, as Python has, hears of it only after the call that waits.
// So the second SIGINT within one wait ends the program.
//
// Pure: time, width and the names of users come in; text to write comes out.
// Threading: none.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "src/base/time.h"
#include "src/wire/messages.h"

namespace tandem::cli {

class WaitLine {
 public:
  enum class Style { kSilent, kLines, kLive };
  using UserNames = std::function<std::string(uint64_t uid)>;

  WaitLine(Style style, UserNames names) : style_(style), names_(std::move(names)) {}

  Style style() const { return style_; }
  // The daemon's word, also that nothing waits. What to write.
  std::string OnWaiting(const wire::Waiting& waiting, Instant now, size_t columns);
  // The program has ended or is stopped, or the daemon is gone. What to write.
  std::string OnPause();
  // SIGINT came. What to write; `end`: whether the program shall end.
  std::string OnInterrupt(size_t columns, bool* end);

 private:
  std::string Draw(size_t columns);
  std::string Words() const;
  std::string Why() const;

  const Style style_;
  const UserNames names_;
  std::optional<wire::Waiting> waiting_;
  Instant began_;                 // the wait
  bool told_ = false;             // of this wait, in kLines
  std::optional<Instant> tells_;  // kLines: when a wait was last told
  bool drawn_ = false;            // kLive: the line is on the screen
  int interrupts_ = 0;            // within this wait
};

}  // namespace tandem::cli
