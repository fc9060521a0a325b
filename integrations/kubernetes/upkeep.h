// What the programs on a node do once a second until a signal ends them, and how they log trouble.
#pragma once

#include <csignal>
#include <ctime>
#include <functional>
#include <string>
#include <utility>

#include "src/base/result.h"

namespace tandem::kubernetes {

// SIGTERM and SIGINT wait from here on: threads that start later do not end by them.
inline sigset_t BlockEnds() {
  sigset_t ends;
  sigemptyset(&ends);
  for (const int number : {SIGTERM, SIGINT}) sigaddset(&ends, number);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  return ends;
}

// Calls `look` once a second until one of the blocked signals comes.
inline void LookUntil(const sigset_t& ends, const std::function<void()>& look) {
  constexpr timespec kSecond{1, 0};
  do {
    look();
  } while (sigtimedwait(&ends, nullptr, &kSecond) < 0);
}

// One kind of trouble, logged when it begins or changes.
class Trouble {
 public:
  explicit Trouble(std::function<void(const std::string&)> log) : log_(std::move(log)) {}

  void Set(const Status& status) {
    const std::string now = status.ok() ? "" : status.error().message;
    if (!now.empty() && now != told_) log_(now);
    told_ = now;
  }

 private:
  std::function<void(const std::string&)> log_;
  std::string told_;
};

}  // namespace tandem::kubernetes
