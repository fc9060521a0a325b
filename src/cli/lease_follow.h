// `tandem lease follow`: an engine's stop signals, told to the daemon.
//
// An engine suspends a job by SIGTSTP to all of its processes, and by SIGSTOP some seconds later.
// What is stopped cannot give its memory away. So one more process of the job takes SIGTSTP as the
// order to suspend the job, and SIGCONT as the order to resume it.
//
// Threading: one thread. Invariant: of each order only the last matters; a daemon that is away is
// told once it is back.
#pragma once

#include <string>

namespace tandem::cli {

// Returns 0 when standard input ends, or at SIGTERM. Other signals of the job do not end it.
int FollowStopSignals(const std::string& job);

}  // namespace tandem::cli
