// Mounts of the host's files in a container that runs: what its runtime makes at its start where it
// has a device of Tandem's.
#pragma once

#include <vector>

#include "src/base/result.h"
#include "src/cdi/spec.h"

namespace tandem::cli {

// Mounts files, folders and device nodes in the mount namespace of that process. Makes the files
// and folders that they cover where those are missing. An error, in words, leaves none of the
// mounts.
// REQUIRES: CAP_SYS_ADMIN; this process has one thread. Linux 5.12.
Status MountIn(int pid, const std::vector<cdi::Mount>& mounts);

}  // namespace tandem::cli
