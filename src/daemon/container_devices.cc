#include "src/daemon/container_devices.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <filesystem>

#include "src/base/json.h"
#include "src/base/layout.h"
#include "src/cdi/file.h"
#include "src/cdi/spec.h"

namespace tandem::daemon {
namespace {

Status Write(const std::string& file, const std::string& socket,
             const std::vector<service::GpuInfo>& gpus) {
  ASSIGN_OR_RETURN(const Layout layout, OwnLayout());
  std::vector<cdi::CdiGpu> shared;
  bool software = false;
  for (const service::GpuInfo& gpu : gpus) {
    shared.push_back({gpu.index, service::BudgetOf(gpu, Bytes())});
    software = software || gpu.software;
  }
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  const std::string runtime_dir = std::filesystem::path(socket).parent_path();
  const cdi::CdiHost host = cdi::HostOf(layout, software, runtime_dir, environment);
  return cdi::WriteSpec(file, JsonText(cdi::CdiSpec(cdi::kCdiKind, host, shared, {}), 2) + "\n");
}

}  // namespace

void OfferToContainers(const std::string& file, const std::string& socket,
                       const std::vector<service::GpuInfo>& gpus) {
  const Status written = Write(file, socket, gpus);
  if (written.ok()) {
    spdlog::info("the GPUs are devices of containers: {}", file);
  } else {
    spdlog::warn("the GPUs are no devices of containers: {}", written.error().message);
  }
}

}  // namespace tandem::daemon
