// The daemon of the run that this program belongs to.
//
// Threading: any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "src/base/result.h"

namespace tandem::shim {

// The token of the run, 0 if the program is of none. A process that was started in a run may
// outlive it, and still hand TANDEM_RUN down.
uint64_t OwnRun();

// Waits until `reached` says that a daemon was there; at once where the program is of no run.
// Between the attempts it sleeps. False: the program was asked to end meanwhile.
//
// `tandem run` starts another daemon where one went. As long as the run lasts the program waits for
// it: without a daemon no limit would hold, and others would not get the memory that they were
// promised. A line on stderr says so after a second, then once a minute. `reached` returns why
// there is no daemon, or success.
bool AwaitRunDaemon(const std::function<Status()>& reached);

// The result of `attempt`, which is made again while it lacks the run's daemon. kInterrupted: the
// program was asked to end meanwhile.
template <typename Attempt>
auto AwaitDaemon(Attempt attempt) -> decltype(attempt()) {
  decltype(attempt()) result = Error{ErrorCode::kInterrupted, ""};
  const bool waited = AwaitRunDaemon([&]() -> Status {
    result = attempt();
    if (result.ok()) return {};
    return result.error();
  });
  if (waited) return result;
  return Error{ErrorCode::kInterrupted, "a signal came while a daemon was waited for"};
}

}  // namespace tandem::shim
