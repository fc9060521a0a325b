// Keeps the node's label with the free units of each GPU, for the extender (room.h). What pods have
// is the kubelet's answer, by its interface PodResources.
//
// Threading: one thread.
#pragma once

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

  // Asks the kubelet; tells the API server where the label has to change. `counts`: units that the
  // plugin offers. Tried again at the next call after an error.
  Status Refresh(const Counts& counts);

 private:
  class Kubelet;

  const std::string node_;
  const ApiServer server_;
  const std::unique_ptr<Kubelet> kubelet_;
  std::optional<std::string> told_;
};

}  // namespace tandem::kubernetes
