// Which runs are open: known without a daemon, so also while one is being restarted.
//
// A file of the user's own (runtime_dir.h), of which the guard of each run locks the byte with the
// run's number. The kernel takes the lock back with the guard, however that ends.
#pragma once

#include <cstdint>

#include "src/base/result.h"
#include "src/base/unique_fd.h"

namespace tandem::wire {

// The run is open until the descriptor is closed.
Result<UniqueFd> MarkRunOpen(uint64_t run);

// True also where no descriptor is left to find out: a member of a run must not forget it then.
bool IsOpenRun(uint64_t run);

}  // namespace tandem::wire
