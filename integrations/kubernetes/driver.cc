#include "integrations/kubernetes/driver.h"

#include <chrono>
#include <filesystem>
#include <utility>

#include <dra.grpc.pb.h>
#include <plugin_registration.grpc.pb.h>

namespace tandem::kubernetes {
namespace {

namespace dra = k8s::io::kubelet::pkg::apis::dra::v1;

constexpr char kVersion[] = "v1.DRAPlugin";
constexpr char kDraSocket[] = "/dra.sock";

Result<std::unique_ptr<grpc::Server>> Listen(const std::string& path, grpc::Service* service) {
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + path, grpc::InsecureServerCredentials());
  builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return Error{ErrorCode::kFailed, "cannot listen at " + path};
  return server;
}

void End(std::unique_ptr<grpc::Server>& server) {
  if (server != nullptr) {
    server->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  }
}

}  // namespace

class Driver::DraService final : public dra::DRAPlugin::Service {
 public:
  explicit DraService(Prepare prepare) : prepare_(std::move(prepare)) {}

  grpc::Status NodePrepareResources(grpc::ServerContext*,
                                    const dra::NodePrepareResourcesRequest* request,
                                    dra::NodePrepareResourcesResponse* response) override {
    for (const dra::Claim& claim : request->claims()) {
      dra::NodePrepareResourceResponse& answer = (*response->mutable_claims())[claim.uid()];
      const auto devices = prepare_({claim.namespace_(), claim.name(), claim.uid()});
      if (!devices.ok()) {
        answer.set_error(devices.error().message);
        continue;
      }
      for (const Allocated& allocated : *devices) {
        dra::Device* const device = answer.add_devices();
        device->add_request_names(allocated.request);
        device->set_pool_name(allocated.pool);
        device->set_device_name(allocated.device);
        device->add_cdi_device_ids(allocated.cdi);
      }
    }
    return grpc::Status::OK;
  }

  // The lease of a container ends with it: there is nothing to undo.
  grpc::Status NodeUnprepareResources(grpc::ServerContext*,
                                      const dra::NodeUnprepareResourcesRequest* request,
                                      dra::NodeUnprepareResourcesResponse* response) override {
    for (const dra::Claim& claim : request->claims()) (*response->mutable_claims())[claim.uid()];
    return grpc::Status::OK;
  }

 private:
  const Prepare prepare_;
};

class Driver::RegistrationService final : public pluginregistration::Registration::Service {
 public:
  RegistrationService(std::string endpoint, Log log)
      : endpoint_(std::move(endpoint)), log_(std::move(log)) {}

  grpc::Status GetInfo(grpc::ServerContext*, const pluginregistration::InfoRequest*,
                       pluginregistration::PluginInfo* info) override {
    info->set_type("DRAPlugin");
    info->set_name(kDriver);
    info->set_endpoint(endpoint_);
    info->add_supported_versions(kVersion);
    return grpc::Status::OK;
  }

  grpc::Status NotifyRegistrationStatus(grpc::ServerContext*,
                                        const pluginregistration::RegistrationStatus* status,
                                        pluginregistration::RegistrationStatusResponse*) override {
    log_(status->plugin_registered() ? "registered with the kubelet"
                                     : "the kubelet does not take the driver: " + status->error());
    return grpc::Status::OK;
  }

 private:
  const std::string endpoint_;
  const Log log_;
};

Driver::Driver(std::string registry, std::string folder, Prepare prepare, Log log)
    : registry_(std::move(registry)),
      folder_(std::move(folder)),
      dra_(std::make_unique<DraService>(std::move(prepare))),
      registration_(std::make_unique<RegistrationService>(folder_ + kDraSocket, std::move(log))) {}

Driver::~Driver() {
  // The kubelet forgets the driver when its socket goes.
  End(registration_server_);
  End(dra_server_);
}

Status Driver::Start() {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) return Error{ErrorCode::kFailed, "cannot make " + folder_ + ": " + error.message()};
  ASSIGN_OR_RETURN(dra_server_, Listen(folder_ + kDraSocket, dra_.get()));
  ASSIGN_OR_RETURN(registration_server_,
                   Listen(registry_ + "/" + kDriver + "-reg.sock", registration_.get()));
  return {};
}

}  // namespace tandem::kubernetes
