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
#include "src/cli/containers/device_cgroup.h"

namespace tandem::cli {

struct RunningContainer {
  int pid = 0;  // of one of its processes
  Container container;
};

// `target`: a process of the container, its hostname, or at least four characters that its id
// begins with. kNotFound: no process is in such a container. kInvalid: several containers are
// called so.
Result<RunningContainer> FindRunning(const std::string& target);

// The mounts of Tandem that the container needs; none where it has them. An error, in words, where
// it has another preload file.
Result<std::vector<cdi::Mount>> MountsFor(const RunningContainer& running,
                                          const cdi::CdiHost& host);

// Whether it was started with NVIDIA's devices.
bool HasNvidiaDevices(const RunningContainer& running);

// The cgroups of the container that decide which devices it may open.
DeviceCgroup DeviceCgroupOf(const RunningContainer& running);

// The container's id in a cgroup's path, such as that of "/machine.slice/libpod-4f…e1.scope"; where
// it has none, the path's last part.
std::string IdIn(const std::string& cgroup);

}  // namespace tandem::cli
