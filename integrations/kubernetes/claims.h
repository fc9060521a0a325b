// What Dynamic Resource Allocation (resource.k8s.io/v1) says of the node's GPUs, and what it has
// allocated to a claim. A GPU is a device whose capacities "memory" and "share" several claims have
// parts of (KEP-5075, consumable capacity). A share is a percentage of the GPU's time.
//
// Pure. Threading: none.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/result.h"

namespace tandem::kubernetes {

inline constexpr char kDriver[] = "tandem.dev";
inline constexpr char kMemoryCapacity[] = "memory";
inline constexpr char kShareCapacity[] = "share";

// A GPU of the node: memory that one claim may have, and memory that is offered to all.
struct GpuMemory {
  Bytes largest, offered;
};

// The ResourceSlice of the node. `unit`: the step of a claim's memory. A larger `generation`
// replaces the slice of a smaller one.
nlohmann::json SliceOf(const std::string& node, const std::map<int, GpuMemory>& gpus, Bytes unit,
                       int64_t generation);

// "20Gi", "500M", "1.5Gi", "21474836480": Kubernetes' quantities of bytes; rounded up.
Result<Bytes> BytesOfQuantity(const std::string& text);

struct Allocated {
  std::string request, pool, device;
  int gpu = 0;
  Bytes memory;     // 0: the whole of the GPU
  int share = 0;    // 0: none is set
  std::string cdi;  // "0-20g", or "0" for the whole of a GPU; "0-20g-share30"
};
// The driver's devices of a ResourceClaim. kInvalid, in words for the pod's events: the claim has
// none.
Result<std::vector<Allocated>> DevicesOf(const nlohmann::json& claim, Bytes unit);

}  // namespace tandem::kubernetes
