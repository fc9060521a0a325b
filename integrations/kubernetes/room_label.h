// Keeps the node's labels with the free units of each GPU, for the extender (room.h). What pods
// have is the kubelet's answer, by its interface PodResources.
//
// Threading: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "integrations/kubernetes/api_server.h"
#include "integrations/kubernetes/devices.h"
#include "src/base/result.h"

namespace tandem::kubernetes {

class RoomLabel {
 public:
  // `socket`: the kubelet's, of PodResources.
  RoomLabel(std::string node, std::string socket, ApiAccess access);
  ~RoomLabel();

  // Asks the kubelet; tells the API server where a label has to change. `counts`: units that the
  // plugin offers; `allocations`: containers that have been given some. Tried again at the next
  // call after an error.
  Status Refresh(const Counts& counts, int64_t allocations);

 private:
  class Kubelet;

  const std::string node_;
  const ApiServer server_;
  const std::unique_ptr<Kubelet> kubelet_;
  const int64_t start_;
  int64_t allocations_ = 0;  // at the last call: the kubelet tells of their devices by now
  std::optional<nlohmann::json> told_;
};

}  // namespace tandem::kubernetes
