// tandem-device-plugin: offers the node's GPUs to Kubernetes.
//
// One thread looks once a second whether the kubelet's socket is another one, which means that the
// kubelet has forgotten its plugins, and whether the daemon's GPUs have changed.
#include <fmt/core.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <string>
#include <utility>

#include "integrations/kubernetes/node_gpus.h"
#include "integrations/kubernetes/plugin.h"

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

class Main {
 public:
  Main(const PluginOptions& options, Bytes unit)
      : options_(options),
        gpus_(options, unit),
        memory_("tandem.dev/gpu-memory", "tandem-gpu-memory.sock",
                [=, this](const Grant& grant) {
                  return options_.kind + "=" + MemoryDevice(grant, unit);
                }),
        shares_("tandem.dev/gpu", "tandem-gpu.sock", [=, this](const Grant& grant) {
          return options_.kind + "=" + std::to_string(grant.gpu);
        }) {}

  void Look() {
    const Result<bool> changed = gpus_.Refresh();
    Tell(changed.ok() ? "" : changed.error().message);
    if (changed.ok() && *changed) {
      memory_.offer().Set(DeviceIds(gpus_.memory()), gpus_.healthy());
      shares_.offer().Set(DeviceIds(gpus_.shares()), gpus_.healthy());
      Log(gpus_.healthy() ? "offers the GPUs of this node"
                          : "the daemon is away: no GPU is healthy");
    }
    const auto kubelet = SocketAt(options_.plugins + "/kubelet.sock");
    if (kubelet == registered_) return;
    if (kubelet == std::pair<ino_t, time_t>{}) return;
    Status registered = memory_.Start(options_.plugins);
    if (registered.ok() && options_.shares > 0) registered = shares_.Start(options_.plugins);
    if (!registered.ok()) return Tell(registered.error().message);
    registered_ = kubelet;
    Log("registered with the kubelet");
  }

 private:
  // Once, however often it is seen.
  void Tell(const std::string& trouble) {
    if (!trouble.empty() && trouble != told_) Log(trouble);
    told_ = trouble;
  }

  PluginOptions options_;
  NodeGpus gpus_;
  Plugin memory_, shares_;
  std::pair<ino_t, time_t> registered_{};
  std::string told_;
};

int Serve(const PluginOptions& options) {
  const Result<Bytes> unit = ParseSize(options.unit);
  if (!unit.ok() || unit->count == 0 || unit->count % MiB(1).count != 0) {
    Log("--unit: give whole MiB, such as 1G or 512M");
    return 2;
  }
  sigset_t ends;
  sigemptyset(&ends);
  for (const int number : {SIGTERM, SIGINT}) sigaddset(&ends, number);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  Main main(options, *unit);
  constexpr timespec kSecond{1, 0};
  do {
    main.Look();
  } while (sigtimedwait(&ends, nullptr, &kSecond) < 0);
  return 0;
}

}  // namespace
}  // namespace tandem::kubernetes

int main(int argc, char** argv) {
  tandem::kubernetes::PluginOptions options;
  CLI::App app(
      "Offers the GPUs of this node to Kubernetes, as tandem.dev/gpu-memory and tandem.dev/gpu.");
  app.add_option("--unit", options.unit, "Memory of one tandem.dev/gpu-memory")
      ->type_name("SIZE")
      ->capture_default_str();
  app.add_option("--oversubscribe", options.oversubscribe,
                 "Offer this many times the memory; the rest waits on the host")
      ->check(CLI::Range(1.0, 100.0))
      ->capture_default_str();
  app.add_option("--shares", options.shares, "Containers that may have the whole of a GPU; 0: none")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  app.add_option("--plugins", options.plugins, "The kubelet's folder of device plugins")
      ->type_name("FOLDER")
      ->capture_default_str();
  app.add_option("--cdi", options.specification, "Where the CDI specification is written")
      ->type_name("FILE")
      ->capture_default_str();
  app.add_option("--kind", options.kind, "Vendor and class of the CDI devices")
      ->type_name("VENDOR/CLASS")
      ->capture_default_str();
  app.add_option("--tandem", options.tandem, "The command `tandem`; default: of this installation")
      ->type_name("PATH");
  app.footer(
      "The node's daemon must run. Each container gets a lease by the hook of its CDI device.\n"
      "integrations/kubernetes/README.md has the steps.\n"
      "\n"
      "Examples:\n"
      "  tandem-device-plugin\n"
      "  tandem-device-plugin --oversubscribe 2 --shares 0");
  CLI11_PARSE(app, argc, argv);
  return tandem::kubernetes::Serve(options);
}
