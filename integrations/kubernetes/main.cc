// tandem-device-plugin: offers the node's GPUs to Kubernetes.
//
// One thread looks once a second whether the kubelet's socket is another one, which means that the
// kubelet has forgotten its plugins, and whether the daemon's GPUs have changed.
#include <fmt/core.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <utility>

#include "integrations/kubernetes/node_gpus.h"
#include "integrations/kubernetes/options.h"
#include "integrations/kubernetes/plugin.h"
#include "integrations/kubernetes/room_label.h"
#include "integrations/kubernetes/upkeep.h"

namespace tandem::kubernetes {
namespace {

void Log(const std::string& text) {
  fmt::print(stderr, "tandem-device-plugin: {}\n", text);
}

// What tells one socket from its successor; 0 where there is none.
std::pair<ino_t, time_t> SocketAt(const std::string& path) {
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0) return {};
  return {facts.st_ino, facts.st_ctime};
}

struct PluginOptions : NodeOptions {
  std::string plugins = "/var/lib/kubelet/device-plugins";
  bool spread = false;
  int shares = 10;  // of each GPU, for tandem.dev/gpu; 0: none
  std::string pod_resources = "/var/lib/kubelet/pod-resources/kubelet.sock";
};

class Main {
 public:
  Main(const PluginOptions& options, Bytes unit)
      : options_(options),
        gpus_(options, unit),
        memory_("tandem.dev/gpu-memory", "tandem-gpu-memory.sock",
                options.spread ? Placement::kMostRoom : Placement::kBestFit,
                [=, this](const Grant& grant) {
                  return options_.kind + "=" + MemoryDevice(grant, unit);
                }),
        shares_("tandem.dev/gpu", "tandem-gpu.sock", Placement::kMostRoom,
                [=, this](const Grant& grant) {
                  return options_.kind + "=" + std::to_string(grant.gpu);
                }) {
    if (options.node.empty()) return;
    label_ = std::make_unique<RoomLabel>(options.node, options.pod_resources, options.api);
  }

  void Look() {
    const Result<bool> changed = gpus_.Refresh();
    trouble_.Set(changed.ok() ? Status() : changed.error());
    if (changed.ok() && *changed) {
      const std::set<int> unhealthy = gpus_.unhealthy();
      memory_.offer().Set(DeviceIds(gpus_.memory()), unhealthy);
      shares_.offer().Set(DeviceIds(gpus_.shares(options_.shares)), unhealthy);
      Log(gpus_.daemon_answers() ? "offers the GPUs of this node"
                                 : "the daemon is away: no GPU is healthy");
      for (const int gpu : gpus_.daemon_answers() ? unhealthy : std::set<int>()) {
        Log("the driver has lost gpu" + std::to_string(gpu) + ": it is unhealthy");
      }
    }
    Register();
    if (label_ == nullptr || registered_ == kNoSocket) return;
    trouble_of_label_.Set(label_->Refresh(gpus_.usable(), memory_.allocations()));
  }

 private:
  void Register() {
    const std::string socket = options_.plugins + "/kubelet.sock";
    const auto kubelet = SocketAt(socket);
    if (kubelet == kNoSocket) {
      return trouble_of_kubelet_.Set(
          Error{ErrorCode::kNotFound, "waits for the kubelet: there is no " + socket});
    }
    trouble_of_kubelet_.Set({});
    if (kubelet == registered_) return;
    Status registered = memory_.Start(options_.plugins);
    if (registered.ok() && options_.shares > 0) registered = shares_.Start(options_.plugins);
    if (!registered.ok()) return trouble_.Set(registered);
    registered_ = kubelet;
    Log("registered with the kubelet");
  }

  static constexpr std::pair<ino_t, time_t> kNoSocket{};

  PluginOptions options_;
  NodeGpus gpus_;
  Plugin memory_, shares_;
  std::pair<ino_t, time_t> registered_{};
  std::unique_ptr<RoomLabel> label_;
  Trouble trouble_{Log}, trouble_of_kubelet_{Log}, trouble_of_label_{Log};
};

int Serve(const PluginOptions& options) {
  const Result<Bytes> unit = UnitOf(options);
  if (!unit.ok()) {
    Log(unit.error().message);
    return 2;
  }
  if (!options.node.empty() && options.api.url.empty()) {
    Log("--node needs --api, the address of Kubernetes' API server");
    return 2;
  }
  const sigset_t ends = BlockEnds();
  Main main(options, *unit);
  LookUntil(ends, [&] { main.Look(); });
  return 0;
}

}  // namespace
}  // namespace tandem::kubernetes

int main(int argc, char** argv) {
  tandem::kubernetes::PluginOptions options;
  CLI::App app(
      "Offers the GPUs of this node to Kubernetes, as tandem.dev/gpu-memory and tandem.dev/gpu.");
  app.add_flag("--spread", options.spread,
               "Prefer the GPU with the most room, not the fullest with enough");
  app.add_option("--shares", options.shares, "Containers that may have the whole of a GPU; 0: none")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  app.add_option("--node", options.node,
                 "The node's name: keep its label with the free memory of each GPU")
      ->type_name("NAME")
      ->envname("NODE_NAME");
  tandem::kubernetes::AddApiOptions(app, options.api);
  tandem::kubernetes::AddGpuOptions(app, options);
  app.add_option("--pod-resources", options.pod_resources, "The kubelet's socket of pods' devices")
      ->type_name("SOCKET")
      ->capture_default_str();
  app.add_option("--plugins", options.plugins, "The kubelet's folder of device plugins")
      ->type_name("FOLDER")
      ->capture_default_str();
  app.footer(
      "The node's daemon must run. Each container gets a lease by the hook of its CDI device.\n"
      "integrations/kubernetes/README.md has the steps.\n"
      "\n"
      "Examples:\n"
      "  tandem-device-plugin\n"
      "  tandem-device-plugin --oversubscribe 2 --spread --shares 0\n"
      "  tandem-device-plugin --node n1 --api https://10.0.0.1:6443 --ca ca.crt --certificate "
      "n1.pem");
  setenv("GRPC_VERBOSITY", "NONE", 0);  // its words are for its developers
  if (const auto status = tandem::kubernetes::Parse(app, argc, argv)) return *status;
  return tandem::kubernetes::Serve(options);
}
