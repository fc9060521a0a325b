// The driver's side of Dynamic Resource Allocation on a node: its gRPC servers, which the kubelet
// finds by a socket in its folder of plugins (plugin_registration.proto, dra.proto).
//
// Threading: the methods are for one thread; gRPC calls `prepare` and `log` from its own.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "integrations/kubernetes/claims.h"
#include "src/base/result.h"

namespace tandem::kubernetes {

struct ClaimName {
  std::string space, name, uid;
};

class Driver {
 public:
  // The devices of a claim, each with the full name of its CDI device; an error is for the pod's
  // events.
  using Prepare = std::function<Result<std::vector<Allocated>>(const ClaimName& claim)>;

  // What the kubelet says of the registration.
  using Log = std::function<void(const std::string& text)>;

  // `registry`: the kubelet's folder of sockets. `folder`: of the driver's own.
  Driver(std::string registry, std::string folder, Prepare prepare, Log log);
  ~Driver();

  Status Start();

 private:
  class DraService;
  class RegistrationService;

  const std::string registry_, folder_;
  std::unique_ptr<DraService> dra_;
  std::unique_ptr<RegistrationService> registration_;
  std::unique_ptr<grpc::Server> dra_server_, registration_server_;
};

}  // namespace tandem::kubernetes
