// RunView: what the program's run is shown as its GPU, as the daemon says; for NVML.
//
// Threading: any thread. Each look is a connection of its own, so that programs that use no GPU may
// look, too.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "src/base/bytes.h"

namespace tandem::shim {

struct RunView {
  Bytes limit;
  Bytes used;                              // by all processes of the run
  std::map<uint32_t, uint64_t> processes;  // pid → bytes
};

// Nothing if no daemon knows the run, or it takes too long to answer.
std::optional<RunView> LookAtRun(uint64_t run, const std::string& device_uuid);

}  // namespace tandem::shim
