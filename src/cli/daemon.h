// Reaching the daemon, and starting one where none runs.
//
// Threading: one thread; DaemonFinder forks.
// Errors: kUnavailable where no daemon answers, kRefused with the daemon's own words, kVersion with
// what to do about it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "src/base/unique_fd.h"
#include "src/cli/environment.h"
#include "src/wire/channel.h"

namespace tandem::cli {

// How root starts the daemon for all users.
inline constexpr const char* kStartForAllUsers = "tandemd --everybody";

// Sends `request` and waits for the answer, for a bounded time.
Result<wire::Message> Ask(wire::Channel* channel, const wire::Message& request);

// To the daemon that runs; that none does is said as it is for an order, which needs one.
Result<wire::Channel> ConnectRunning();

// The JSON that the daemon answers with.
Result<std::string> AskForJson(wire::Channel* channel, const wire::Message& request);

// The daemon's JSON for "status", "sessions" or "handovers". kNotFound or kUnavailable where no
// daemon runs.
Result<std::string> Query(const std::string& what);

// How to start a daemon.
struct DaemonCommand {
  std::vector<std::string> arguments;  // from the program's path
  Environment environment;
  std::string log;        // its log; where it does not start, what it said is appended
  std::string note = {};  // what its user is told when it is started; may be empty
};

// The daemon of this installation, which leaves when it was idle for some minutes. None where it
// is root's to start.
Result<std::optional<DaemonCommand>> OwnDaemon(const Layout& layout, Gpu gpu,
                                               Environment environment);

// Connects to the daemon at a socket, and starts one where none answers and there is a command for
// it. Several processes may do this at once: the daemons settle who stays.
class DaemonFinder {
 public:
  DaemonFinder(std::string socket, std::optional<DaemonCommand> command)
      : socket_(std::move(socket)), command_(std::move(command)) {}

  // One attempt, which waits for nothing: connects, or starts a daemon unless one of ours runs. A
  // closed channel: none answers yet.
  Result<wire::Channel> Try();

  // Tries until a daemon answers, for a bounded time: a short one where it has to start by itself.
  Result<wire::Channel> Await();

 private:
  Status Start();
  Error DidNotStart(const std::string& how) const;
  Error NobodyServes() const;

  const std::string socket_;
  const std::optional<DaemonCommand> command_;
  pid_t pid_ = 0;          // of the daemon started here; 0: none runs
  bool noted_ = false;     // its user was told the command's note
  bool answered_ = false;  // a daemon did, since the last one was started
  UniqueFd report_;        // in memory: what it says before it has its log, also on a full disk
  Instant start_at_;       // not before
};

}  // namespace tandem::cli
