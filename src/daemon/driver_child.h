// A child process that talks to the driver in the daemon's stead: what it takes on the card goes
// with it, and a driver that hangs holds up only the child.
#pragma once

#include <sys/types.h>

#include <string>

#include "src/base/result.h"

namespace tandem::daemon {

// Whether the software GPU takes the place of the driver.
bool IsSoftGpuAskedFor();

// Starts `program` (this one) with the one argument `flag`. It sees all GPUs, through the driver
// itself. `out`: its standard output. `in`: its standard input; -1: the daemon's, and it says on
// the daemon's standard error what is wrong.
Result<pid_t> StartDriverChild(const std::string& program, const std::string& flag, int in,
                               int out);

}  // namespace tandem::daemon
