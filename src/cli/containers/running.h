// A container that was started without a device of Tandem's: which one it is, and what brings a
// device into it while it runs.
//
// Reads /proc. Threading: none.
#pragma once

#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/cdi/spec.h"
#include "src/cli/containers/container.h"

namespace tandem::cli {

struct RunningContainer {
  int pid = 0;  // of one of its processes
  Container container;
};

// `target`: a process of the container, its hostname, or at least four characters that its id
// begins with. kNotFound: no process is in such a container. kInvalid: several containers are
// called so.
Result<RunningContainer> FindRunning(const std::string& target);

// The mounts that the container needs; none where it has them. An error, in words, where it cannot
// have a GPU: it has another preload file, or nothing of NVIDIA's driver.
Result<std::vector<cdi::Mount>> MountsFor(const RunningContainer& running,
                                          const cdi::CdiHost& host);

// The container's id in a cgroup's path, such as that of "/machine.slice/libpod-4f…e1.scope"; where
// it has none, the path's last part.
std::string IdIn(const std::string& cgroup);

}  // namespace tandem::cli
