// Runs the command `tandem`, which knows how to talk to the node's daemon.
//
// Threading: any thread; forks and waits, for a bounded time.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/base/result.h"

namespace tandem::integrations {

struct Command {
  std::string path;                      // of tandem
  std::vector<std::string> environment;  // NAME=VALUE: all that it gets
};

// Beside the shared object that has this function: ../bin, or further up where it is installed.
std::string OwnTandem();

// What it prints on standard output. kUnavailable: it cannot be started, or did not end in time;
// kRefused: it failed, with what it said.
Result<std::string> Output(const Command& command, const std::vector<std::string>& words);

// Starts it for the life of a job's step: as the user, in the cgroups and the process group of
// `task`, with no file of this process. Its standard input ends when this process does. For a
// multi-threaded process.
Status StartAmong(const Command& command, const std::vector<std::string>& words, int task,
                  unsigned uid, unsigned gid);

}  // namespace tandem::integrations
