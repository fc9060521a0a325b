// Meter: asks how much of the cards' memory is in use, without waiting for the answer.
//
// A child process asks the driver, which may hang. It ends with the daemon. One that does not
// answer is killed; another is started when the next question comes, kRest later at the earliest.
//
// Threading: none.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "src/base/time.h"
#include "src/base/unique_fd.h"
#include "src/service/card_use.h"

namespace tandem::daemon {

// The child's part: writes a line for each byte that it reads. Returns the exit status.
int RunMeter();

class Meter {
 public:
  static constexpr Duration kPatience = Seconds(10);  // with an answer
  static constexpr Duration kRest = Seconds(60);      // after a child that failed

  // `program` is this one.
  explicit Meter(std::string program = "/proc/self/exe") : program_(std::move(program)) {}
  ~Meter();
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  // Nothing while it is at it, or rests.
  void Ask(Instant now);
  bool asked() const { return asked_at_.has_value(); }
  // Where an answer will be readable; another one for each child. -1: no child.
  int fd() const { return socket_.get(); }
  // The answer, once it is there; never waits.
  std::optional<service::CardUses> Take(Instant now);
  // Gives up a child that is overdue.
  void OnTime(Instant now);
  std::optional<Instant> wake() const;

 private:
  bool Start();
  void GiveUp(Instant now);
  void Reap();

  const std::string program_;
  pid_t child_ = 0;
  UniqueFd socket_;   // to the child
  std::string text_;  // of an answer so far
  std::optional<Instant> asked_at_;
  Instant rests_until_;
  std::vector<pid_t> dying_;
};

}  // namespace tandem::daemon
