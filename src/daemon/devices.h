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

// Runs `program`, which is this one, with --probe. A driver that does not answer is given up.
Result<std::string> RunProbe(const std::string& program = "/proc/self/exe",
                             Duration patience = Seconds(15));

// From what the probe printed. `earlier`, what one printed when there was more room (may be empty),
// says what a context costs where this one could not find out.
Result<std::vector<service::GpuInfo>> ParseDevices(const std::string& json,
                                                   uint32_t reserved_contexts,
                                                   const std::string& earlier = "");

// Whether the probe found out what a context costs on every GPU.
bool IsComplete(const std::string& json);

}  // namespace tandem::daemon
