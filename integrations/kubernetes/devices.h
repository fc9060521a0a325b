// The devices that the plugin offers to the kubelet, which counts them: a unit of GPU memory each,
// or a share of a whole GPU.
//
// Pure. Threading: none.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "integrations/kubernetes/room.h"
#include "src/base/bytes.h"
#include "src/base/result.h"

namespace tandem::kubernetes {

// Devices by GPU: how many it has.
using Counts = std::map<int, int>;

// "gpu0-17".
std::vector<std::string> DeviceIds(const Counts& counts);

// Whether that device is of one of the GPUs.
bool IsOf(std::string_view id, const std::set<int>& gpus);

struct Grant {
  int gpu = 0;
  int devices = 0;
};

// What a container gets by these devices. kInvalid, in words for the pod's events: they are of
// several GPUs, or none of this plugin.
Result<Grant> GrantOf(const std::vector<std::string>& ids);

// `size` of the available devices, `required` among them: of one GPU, which `placement` chooses.
// Where no GPU has enough, those of the one that has the most, and others.
std::vector<std::string> Prefer(const std::vector<std::string>& available,
                                const std::vector<std::string>& required, int size,
                                Placement placement);

// Units that are free on each GPU, where containers have these devices.
std::vector<int> FreeOf(const Counts& counts, const std::vector<std::string>& used);

// The CDI device of `units` of memory, as `tandem cdi generate` names it: "0-20g".
std::string MemoryDevice(const Grant& grant, Bytes unit);

}  // namespace tandem::kubernetes
