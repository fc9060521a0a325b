// What Tandem adds to Kubernetes' scheduler, by its interface of extenders: which nodes have a GPU
// with room for a pod, and which of them fits best. Answers and requests are JSON, with the names
// of extender/v1 in any case: Kubernetes 1.20 writes "Pod" where others write "pod".
//
// Threading: any; its mutex guards what has been assumed.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "integrations/kubernetes/room.h"
#include "src/base/result.h"

namespace tandem::kubernetes {

inline constexpr char kMemoryResource[] = "tandem.dev/gpu-memory";

// Units of each container of a pod (v1.Pod) that asks for some; init containers are apart.
struct PodRequests {
  Requests containers, init_containers;
};
PodRequests RequestsOf(const nlohmann::json& pod);

struct Binding {
  std::string pod, space, uid, node;
};

class Extender {
 public:
  using Time = Assumed::Time;

  // `bind` tells the API server.
  Extender(Placement placement, std::function<Status(const Binding&)> bind)
      : placement_(placement), bind_(std::move(bind)), assumed_(placement) {}

  // Each takes the body of a request. kInvalid: it is not what the interface has.
  Result<nlohmann::json> Filter(const nlohmann::json& arguments, Time now);
  Result<nlohmann::json> Prioritize(const nlohmann::json& arguments, Time now);
  Result<nlohmann::json> Bind(const nlohmann::json& arguments, Time now);

 private:
  struct Asked {
    Requests requests;
    Time when;
  };

  // The node's room for the pod, or why it has none.
  Result<Placed> PlaceOn(const nlohmann::json& node, const PodRequests& requests, Time now);

  const Placement placement_;
  const std::function<Status(const Binding&)> bind_;
  std::mutex mutex_;  // guards what follows
  Assumed assumed_;
  std::map<std::string, Asked> asked_;  // by the pod's uid: Bind is told no more of it
};

}  // namespace tandem::kubernetes
