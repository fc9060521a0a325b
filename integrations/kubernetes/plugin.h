// One resource of the node, as the kubelet's interface of device plugins has it (v1beta1): its gRPC
// server on a Unix socket, and its registration.
//
// Threading: the methods of Plugin are for one thread; gRPC calls the service from its own.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <device_plugin.grpc.pb.h>
#include "integrations/kubernetes/devices.h"
#include "src/base/result.h"

namespace tandem::kubernetes {

// What the kubelet sees, and changes of it.
class Offer {
 public:
  struct State {
    std::vector<std::string> ids;
    std::set<int> unhealthy;  // GPUs
    uint64_t version = 0;
  };

  void Set(std::vector<std::string> ids, std::set<int> unhealthy);
  State Get() const;

 private:
  mutable std::mutex mutex_;  // guards state_; gRPC's headers have the names of src/base/mutex.h
  State state_;
};

class Plugin {
 public:
  // `device`: the CDI device of a container that has been granted some.
  // `placement`: on which GPU of those with enough.
  Plugin(std::string resource, std::string socket, Placement placement,
         std::function<std::string(const Grant&)> device);
  ~Plugin();

  Offer& offer() { return *offer_; }
  // Containers that have been given devices.
  int64_t allocations() const;
  // Serves anew, on a new socket, and registers with the kubelet in that folder. An error has the
  // kubelet's words.
  Status Start(const std::string& folder);
  void Stop();

 private:
  class Service;

  std::string resource_, socket_;
  std::unique_ptr<Offer> offer_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace tandem::kubernetes
