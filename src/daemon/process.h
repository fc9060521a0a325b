// Processes, named so that a number that has been given to another process is noticed.
//
// Threading: any thread.
#pragma once

#include <cstdint>

#include "src/base/unique_fd.h"

namespace tandem::daemon {

// When a process started, in the kernel's ticks since boot; 0 if it is gone.
uint64_t StartTicks(int pid);
uint64_t TicksNow();

// A pidfd; empty where there is no such process.
UniqueFd OpenProcess(int pid);
// Whether the process has ended.
// Whether it may be the user's: false where its real, effective, saved and file system user all are
// others. True where the kernel does not tell.
bool MayBelongTo(int pid, unsigned uid);
bool HasEnded(const UniqueFd& process);
// Sends it SIGKILL. False where that is not allowed.
bool Kill(const UniqueFd& process);

}  // namespace tandem::daemon
