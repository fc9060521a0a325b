// Which runs are open: known without a daemon, so also while one is being restarted.
//
// A file of the user's own (runtime_dir.h), of which the guard of each run locks the byte with the
// run's number. The kernel takes the lock back with the guard, however that ends.
#pragma once

#include <cstdint>

#include "src/base/result.h"
#include "src/base/unique_fd.h"

namespace tandem::wire {

// Below 2^53: tokens are exact wherever they are read as numbers.
inline constexpr uint64_t kLeaseBit = uint64_t{1} << 52;

// The run is open until the descriptor is closed.
Result<UniqueFd> MarkRunOpen(uint64_t run);

// Whether it is the token of a lease that an engine was given for its job (service/leases.h). The
// daemon keeps these, and they are open as long as it says so.
constexpr bool IsLease(uint64_t run) {
  return (run & kLeaseBit) != 0;
}
// `random` as the token of a lease, or of a run.
constexpr uint64_t LeaseToken(uint64_t random) {
  return (random & (kLeaseBit - 1)) | kLeaseBit;
}
constexpr uint64_t RunToken(uint64_t random) {
  return random & (kLeaseBit - 1);
}

// True also where no descriptor is left to find out: a member of a run must not forget it then.
bool IsOpenRun(uint64_t run);

}  // namespace tandem::wire
