#include "integrations/kubernetes/plugin.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

namespace tandem::kubernetes {
namespace {

constexpr char kVersion[] = "v1beta1";
constexpr auto kLook = std::chrono::milliseconds(100);
constexpr auto kKubeletPatience = std::chrono::seconds(5);

grpc::Status Refused(const Error& error) {
  return {grpc::StatusCode::FAILED_PRECONDITION, error.message};
}

}  // namespace

void Offer::Set(std::vector<std::string> ids, std::set<int> unhealthy) {
  const std::lock_guard lock(mutex_);
  state_.ids = std::move(ids);
  state_.unhealthy = std::move(unhealthy);
  ++state_.version;
}

Offer::State Offer::Get() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

class Plugin::Service final : public v1beta1::DevicePlugin::Service {
 public:
  Service(const Offer* offer, Placement placement, std::function<std::string(const Grant&)> device)
      : offer_(offer), placement_(placement), device_(std::move(device)) {}

  void End() { ends_ = true; }
  int64_t allocations() const { return allocations_; }

  grpc::Status GetDevicePluginOptions(grpc::ServerContext*, const v1beta1::Empty*,
                                      v1beta1::DevicePluginOptions* options) override {
    options->set_get_preferred_allocation_available(true);
    return grpc::Status::OK;
  }

  // Until the kubelet hangs up.
  grpc::Status ListAndWatch(grpc::ServerContext* context, const v1beta1::Empty*,
                            grpc::ServerWriter<v1beta1::ListAndWatchResponse>* writer) override {
    uint64_t sent = 0;
    while (!ends_ && !context->IsCancelled()) {
      const Offer::State state = offer_->Get();
      if (state.version != sent) {
        v1beta1::ListAndWatchResponse list;
        for (const std::string& id : state.ids) {
          v1beta1::Device* const device = list.add_devices();
          device->set_id(id);
          device->set_health(IsOf(id, state.unhealthy) ? "Unhealthy" : "Healthy");
        }
        if (!writer->Write(list)) break;
        sent = state.version;
      }
      std::this_thread::sleep_for(kLook);
    }
    return grpc::Status::OK;
  }

  grpc::Status GetPreferredAllocation(grpc::ServerContext*,
                                      const v1beta1::PreferredAllocationRequest* request,
                                      v1beta1::PreferredAllocationResponse* response) override {
    for (const auto& container : request->container_requests()) {
      const auto& available = container.available_deviceids();
      const auto& required = container.must_include_deviceids();
      auto* const answer = response->add_container_responses();
      for (const std::string& id :
           Prefer({available.begin(), available.end()}, {required.begin(), required.end()},
                  container.allocation_size(), placement_)) {
        answer->add_deviceids(id);
      }
    }
    return grpc::Status::OK;
  }

  grpc::Status Allocate(grpc::ServerContext*, const v1beta1::AllocateRequest* request,
                        v1beta1::AllocateResponse* response) override {
    allocations_ += request->container_requests_size();
    for (const auto& container : request->container_requests()) {
      const auto& ids = container.devices_ids();
      const Result<Grant> grant = GrantOf({ids.begin(), ids.end()});
      if (!grant.ok()) return Refused(grant.error());
      const std::string device = device_(*grant);
      auto* const answer = response->add_container_responses();
      answer->add_cdi_devices()->set_name(device);
      // For kubelets before 1.28, whose runtimes read this.
      (*answer->mutable_annotations())["cdi.k8s.io/tandem_gpu"] = device;
    }
    return grpc::Status::OK;
  }

  grpc::Status PreStartContainer(grpc::ServerContext*, const v1beta1::PreStartContainerRequest*,
                                 v1beta1::PreStartContainerResponse*) override {
    return grpc::Status::OK;
  }

 private:
  const Offer* offer_;
  const Placement placement_;
  std::function<std::string(const Grant&)> device_;
  std::atomic<bool> ends_{false};
  std::atomic<int64_t> allocations_{0};
};

Plugin::Plugin(std::string resource, std::string socket, Placement placement,
               std::function<std::string(const Grant&)> device)
    : resource_(std::move(resource)),
      socket_(std::move(socket)),
      offer_(std::make_unique<Offer>()),
      service_(std::make_unique<Service>(offer_.get(), placement, std::move(device))) {}

int64_t Plugin::allocations() const {
  return service_->allocations();
}

Plugin::~Plugin() {
  Stop();
}

void Plugin::Stop() {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  server_.reset();
}

Status Plugin::Start(const std::string& folder) {
  Stop();
  const std::string path = folder + "/" + socket_;
  std::error_code error;
  std::filesystem::remove(path, error);
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + path, grpc::InsecureServerCredentials());
  builder.RegisterService(service_.get());
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return Error{ErrorCode::kFailed, "cannot listen at " + path};

  const auto kubelet = v1beta1::Registration::NewStub(
      grpc::CreateChannel("unix:" + folder + "/kubelet.sock", grpc::InsecureChannelCredentials()));
  v1beta1::RegisterRequest request;
  request.set_version(kVersion);
  request.set_endpoint(socket_);
  request.set_resource_name(resource_);
  request.mutable_options()->set_get_preferred_allocation_available(true);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kKubeletPatience);
  v1beta1::Empty answer;
  const grpc::Status status = kubelet->Register(&context, request, &answer);
  if (status.ok()) return {};
  return Error{ErrorCode::kUnavailable,
               "the kubelet does not take " + resource_ + ": " + status.error_message()};
}

}  // namespace tandem::kubernetes
