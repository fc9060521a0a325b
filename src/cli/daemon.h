// Reaching the daemon, and starting one where none runs.
//
// Threading: one thread; ConnectOrStart forks.
// Errors: kUnavailable where no daemon answers, kRefused with the daemon's own words, kVersion with
// what to do about it.
#pragma once

#include <sys/types.h>

#include <string>

#include "src/cli/environment.h"
#include "src/wire/channel.h"

namespace tandem::cli {

// Sends `request` and waits for the answer, for a bounded time.
Result<wire::Message> Ask(wire::Channel* channel, const wire::Message& request);

// The daemon's JSON for "status", "sessions" or "handovers". kNotFound or kUnavailable where no
// daemon runs.
Result<std::string> Query(const std::string& what);

// How to start a daemon.
struct DaemonCommand {
  std::vector<std::string> arguments;  // from the program's path
  Environment environment;
  std::string log;  // the file for its output
};

// The daemon of this installation. It leaves when it was idle for some minutes.
Result<DaemonCommand> OwnDaemon(const Layout& layout, Gpu gpu, Environment environment);

// Connects to the daemon at `socket`; starts one where none answers and waits, for a bounded time,
// until it does. Several processes may do this at once: the daemons settle who stays.
Result<wire::Channel> ConnectOrStart(const std::string& socket, const DaemonCommand& command);

}  // namespace tandem::cli
