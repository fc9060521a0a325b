// What Tandem adds to Kubernetes' scheduler, by its interface of extenders: which nodes have a GPU
// with room for a pod, and which of them fits best. Answers and requests are JSON, with the names
// of extender/v1 in any case: Kubernetes 1.20 writes "Pod" where others write "pod".
//
// Threading: any; its mutex guards what is outstanding.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
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
  using Time = Outstanding::Time;

  // `bind` tells the API server. `patience`: see Filter.
  Extender(Placement placement, std::function<Status(const Binding&)> bind,
           std::chrono::milliseconds patience = std::chrono::milliseconds(500))
      : placement_(placement), bind_(std::move(bind)), patience_(patience) {}

  // Each takes the body of a request. kInvalid: it is not what the interface has.
  //
  // The scheduler asks for the next pod while it still binds the last one. Filter waits until it is
  // known where that goes; no longer than `patience`, since it may have been bound nowhere.
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
  const std::chrono::milliseconds patience_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable decided_;
  std::set<std::string> undecided_;  // uids of pods that have passed Filter, and not come to Bind
  Outstanding outstanding_;
  std::map<std::string, Asked> asked_;  // by the pod's uid: Bind is told no more of it
};

}  // namespace tandem::kubernetes
