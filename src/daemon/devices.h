// What GPUs this node has. The driver is asked in a child process, because asking takes a context
// and the daemon must not hold one.
#pragma once

#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/service/service.h"

namespace tandem::daemon {

// The child's part: prints the GPUs as JSON. Returns the exit status.
int PrintProbe();

// Runs this program again with --probe.
Result<std::string> RunProbe();

// From what the probe printed.
Result<std::vector<service::GpuInfo>> ParseDevices(const std::string& json,
                                                   uint32_t reserved_contexts);

}  // namespace tandem::daemon
