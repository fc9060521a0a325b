// tandem-dra-driver: offers the node's GPUs by Kubernetes' Dynamic Resource Allocation.
//
// One thread looks once a second whether the daemon's GPUs have changed, and tells the API server.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <string>
#include <utility>

#include "integrations/kubernetes/driver.h"
#include "integrations/kubernetes/node_gpus.h"
#include "integrations/kubernetes/options.h"
#include "integrations/kubernetes/upkeep.h"

namespace tandem::kubernetes {
namespace {

struct DriverOptions : NodeOptions {
  std::string registry = "/var/lib/kubelet/plugins_registry";
  std::string folder = "/var/lib/kubelet/plugins/tandem.dev";
};

void Log(const std::string& text) {
  fmt::print(stderr, "tandem-dra-driver: {}\n", text);
}

class Main {
 public:
  Main(const DriverOptions& options, Bytes unit)
      : options_(options),
        unit_(unit),
        gpus_(options, unit),
        server_(options.api),
        driver_(
            options.registry, options.folder,
            [this](const ClaimName& claim) { return Prepare(claim); }, Log) {}

  Status Start() { return driver_.Start(); }

  void Look() {
    const Result<bool> changed = gpus_.Refresh();
    trouble_.Set(changed.ok() ? Status() : changed.error());
    published_ &= changed.ok() && !*changed;
    if (!published_) {
      const Status published = Publish();
      published_ = published.ok();
      trouble_of_slice_.Set(published);
    }
  }

 private:
  // Without the daemon, the node has no device.
  Status Publish() const {
    const std::map<int, GpuMemory> memory = gpus_.offered();
    const std::string& node = options_.node;
    TRY(server_.Apply("/apis/resource.k8s.io/v1/resourceslices/tandem-" + node,
                      SliceOf(node, memory, unit_, std::time(nullptr))));
    Log(memory.empty() ? "the daemon is away, or the driver has lost all GPUs: the node has none"
                       : "offers the GPUs of this node");
    return {};
  }

  Result<std::vector<Allocated>> Prepare(const ClaimName& name) {
    ASSIGN_OR_RETURN(const nlohmann::json claim,
                     server_.Get("/apis/resource.k8s.io/v1/namespaces/" + name.space +
                                 "/resourceclaims/" + name.name));
    if (claim.value(nlohmann::json::json_pointer("/metadata/uid"), "") != name.uid) {
      return Error{ErrorCode::kFailed, "tandem: the claim " + name.name + " is another one by now"};
    }
    ASSIGN_OR_RETURN(std::vector<Allocated> devices, DevicesOf(claim, unit_));
    for (Allocated& device : devices) {
      if (device.share != 0) TRY(WriteDevice(device));
      device.cdi = options_.kind + "=" + device.cdi;
    }
    return devices;
  }

  // The kubelet asks for several claims at once.
  Status WriteDevice(const Allocated& device) {
    const std::lock_guard lock(writes_);
    return gpus_.WriteDevice(device);
  }

  const DriverOptions options_;
  const Bytes unit_;
  NodeGpus gpus_;
  const ApiServer server_;
  Driver driver_;
  std::mutex writes_;
  bool published_ = false;
  Trouble trouble_{Log}, trouble_of_slice_{Log};
};

int Serve(const DriverOptions& options) {
  const Result<Bytes> unit = UnitOf(options);
  if (!unit.ok()) {
    Log(unit.error().message);
    return 2;
  }
  if (options.api.url.empty()) {
    Log("--api: give the address of Kubernetes' API server, since this does not run in a pod");
    return 2;
  }
  const sigset_t ends = BlockEnds();
  Main main(options, *unit);
  if (const Status started = main.Start(); !started.ok()) {
    Log(started.error().message);
    return 1;
  }
  LookUntil(ends, [&] { main.Look(); });
  return 0;
}

}  // namespace
}  // namespace tandem::kubernetes

int main(int argc, char** argv) {
  tandem::kubernetes::DriverOptions options;
  CLI::App app("Offers the GPUs of this node by Kubernetes' Dynamic Resource Allocation.");
  app.add_option("--node", options.node, "The node's name")
      ->type_name("NAME")
      ->envname("NODE_NAME")
      ->required();
  tandem::kubernetes::AddApiOptions(app, options.api);
  tandem::kubernetes::AddGpuOptions(app, options);
  app.add_option("--registry", options.registry, "The kubelet's folder of plugins' sockets")
      ->type_name("FOLDER")
      ->capture_default_str();
  app.add_option("--folder", options.folder, "The driver's own folder")
      ->type_name("FOLDER")
      ->capture_default_str();
  app.footer(
      "The node's daemon must run. Kubernetes 1.34 or newer, with DRAConsumableCapacity.\n"
      "integrations/kubernetes/README.md has the steps.\n"
      "\n"
      "Example:\n"
      "  tandem-dra-driver --node n1 --api https://10.0.0.1:6443 --ca ca.crt --certificate n1.pem");
  setenv("GRPC_VERBOSITY", "NONE", 0);  // its words are for its developers
  if (const auto status = tandem::kubernetes::Parse(app, argc, argv)) return *status;
  return tandem::kubernetes::Serve(options);
}
