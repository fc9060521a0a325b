#include "integrations/kubernetes/room_label.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <ctime>
#include <utility>

#include <pod_resources.grpc.pb.h>
#include "integrations/kubernetes/extender.h"
#include "integrations/kubernetes/room.h"

namespace tandem::kubernetes {
namespace {

constexpr auto kKubeletPatience = std::chrono::seconds(5);

}  // namespace

class RoomLabel::Kubelet {
 public:
  explicit Kubelet(const std::string& socket)
      : socket_(socket),
        stub_(v1::PodResourcesLister::NewStub(
            grpc::CreateChannel("unix:" + socket, grpc::InsecureChannelCredentials()))) {}

  // Ids of the devices of memory that pods have.
  Result<std::vector<std::string>> Used() const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kKubeletPatience);
    v1::ListPodResourcesResponse pods;
    const grpc::Status status = stub_->List(&context, v1::ListPodResourcesRequest(), &pods);
    if (!status.ok()) {
      return Error{ErrorCode::kUnavailable, "the kubelet does not tell the devices of pods, at " +
                                                socket_ + ": " + status.error_message()};
    }
    std::vector<std::string> used;
    for (const auto& pod : pods.pod_resources()) {
      for (const auto& container : pod.containers()) {
        for (const auto& devices : container.devices()) {
          if (devices.resource_name() != kMemoryResource) continue;
          used.insert(used.end(), devices.device_ids().begin(), devices.device_ids().end());
        }
      }
    }
    return used;
  }

 private:
  const std::string socket_;
  const std::unique_ptr<v1::PodResourcesLister::Stub> stub_;
};

RoomLabel::RoomLabel(std::string node, std::string socket, ApiAccess access)
    : node_(std::move(node)),
      server_(std::move(access)),
      kubelet_(std::make_unique<Kubelet>(socket)),
      start_(std::time(nullptr)) {}

RoomLabel::~RoomLabel() = default;

Status RoomLabel::Refresh(const Counts& counts, int64_t allocations) {
  const int64_t shown = std::exchange(allocations_, allocations);
  ASSIGN_OR_RETURN(const std::vector<std::string> used, kubelet_->Used());
  const nlohmann::json labels = {
      {kRoomLabel, LabelOf(FreeOf(counts, used))},
      {kAllocationsLabel, std::to_string(start_) + "-" + std::to_string(shown)}};
  if (told_ == labels) return {};
  TRY(server_.MergePatch("/api/v1/nodes/" + node_, {{"metadata", {{"labels", labels}}}}));
  told_ = labels;
  return {};
}

}  // namespace tandem::kubernetes
