#include "src/cdi/spec.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "src/base/user_directory.h"

namespace tandem::cdi {
namespace {

using Json = nlohmann::json;

constexpr char kRuntimeInContainer[] = "/run/tandem";
constexpr char kSoftInContainer[] = "/opt/tandem/soft";
constexpr char kSoftStateInContainer[] = "/run/tandem-soft";

std::string Variable(std::string name, std::string_view value) {
  return name.append("=").append(value);
}

// "20g", "512m": as in a device's name.
std::string SizeName(Bytes size) {
  const bool whole = size.count % GiB(1).count == 0;
  return std::to_string(size.count / (whole ? GiB(1) : MiB(1)).count) + (whole ? "g" : "m");
}

Json ToJson(const ContainerEdits& edits) {
  Json mounts = Json::array();
  for (const Mount& mount : edits.mounts) {
    mounts.push_back({{"hostPath", mount.host},
                      {"containerPath", mount.container},
                      {"options", {mount.writable ? "rw" : "ro", "rbind", "nosuid", "nodev"}}});
  }
  return {{"env", edits.environment}, {"mounts", std::move(mounts)}};
}

// The lease begins before the container's program, and ends after it.
Json Hooks(const CdiHost& host, const std::vector<std::string>& words) {
  Json environment = {Variable("TANDEM_RUNTIME_DIR", host.runtime_dir),
                      Variable("TANDEM_GPU", host.software ? "soft" : "cuda")};
  std::vector<std::string> begin = {"tandem", "cdi", "hook"};
  begin.insert(begin.end(), words.begin(), words.end());
  return {
      {{"hookName", "createRuntime"}, {"path", host.tandem}, {"args", begin}, {"env", environment}},
      {{"hookName", "poststop"},
       {"path", host.tandem},
       {"args", {"tandem", "cdi", "hook", "--end"}},
       {"env", environment}}};
}

Json DeviceJson(const CdiHost& host, const std::string& name,
                const std::vector<std::string>& words) {
  return {{"name", name}, {"containerEdits", {{"hooks", Hooks(host, words)}}}};
}

Json SpecJson(const std::string& kind, const CdiHost& host, Json devices) {
  return {{"cdiVersion", "0.5.0"},
          {"kind", kind},
          {"containerEdits", ToJson(EditsOf(host))},
          {"devices", std::move(devices)}};
}

}  // namespace

CdiHost HostOf(const Layout& layout, bool software, const std::string& runtime_dir,
               const std::vector<std::string>& environment) {
  namespace fs = std::filesystem;
  constexpr std::string_view kState = "TANDEM_SOFT_DIR=";
  CdiHost host;
  host.tandem = fs::path(layout.daemon).parent_path() / "tandem";
  host.shim = layout.shim;
  host.soft_dir = layout.soft_dir;
  host.preload = fs::path(layout.soft_dir).parent_path() / "ld.so.preload";
  host.runtime_dir = runtime_dir;
  host.software = software;
  host.environment = environment;
  host.soft_state = UserDirectory(getuid());
  for (const std::string& entry : environment) {
    if (entry.starts_with(kState)) host.soft_state = entry.substr(kState.size());
  }
  return host;
}

ContainerEdits EditsOf(const CdiHost& host) {
  ContainerEdits edits;
  edits.environment = {Variable("TANDEM_RUNTIME_DIR", kRuntimeInContainer)};
  edits.mounts = {{host.shim, kShimInContainer},
                  {host.preload, kPreloadInContainer},
                  {host.runtime_dir, kRuntimeInContainer, true}};
  if (!host.software) {
    edits.environment.push_back("TANDEM_GPU=cuda");
    return edits;
  }
  edits.environment.push_back("TANDEM_GPU=soft");
  edits.environment.push_back(Variable("LD_LIBRARY_PATH", kSoftInContainer));
  edits.environment.push_back(Variable("TANDEM_SOFT_DIR", kSoftStateInContainer));
  for (const std::string& entry : host.environment) {
    if (entry.starts_with("TANDEM_SOFT_") && !entry.starts_with("TANDEM_SOFT_DIR=")) {
      edits.environment.push_back(entry);
    }
  }
  edits.mounts.push_back({host.soft_dir, kSoftInContainer});
  edits.mounts.push_back({host.soft_state, kSoftStateInContainer, true});
  return edits;
}

Json CdiSpec(const std::string& kind, const CdiHost& host, const std::vector<CdiGpu>& gpus,
             const std::vector<Bytes>& sizes) {
  Json devices = Json::array();
  const auto add = [&](const std::string& name, const std::vector<std::string>& words) {
    devices.push_back(DeviceJson(host, name, words));
  };
  const auto add_all = [&](const std::string& name, Bytes shared) {
    add(name, {"--gpu", name});
    std::vector<Bytes> limits = sizes;
    for (Bytes size = GiB(1); sizes.empty() && size <= shared; size += GiB(1)) {
      limits.push_back(size);
    }
    for (const Bytes limit : limits) {
      if (limit > shared) continue;
      add(name + "-" + SizeName(limit),
          {"--gpu", name, "--memory", std::to_string(limit.count) + "B"});
    }
  };
  Bytes largest;
  for (const CdiGpu& gpu : gpus) {
    add_all(std::to_string(gpu.index), gpu.shared);
    largest = std::max(largest, gpu.shared);
  }
  add_all("any", largest);
  add("none", {"--gpu", "any", "--detached"});
  return SpecJson(kind, host, std::move(devices));
}

Json CdiSpecOf(const std::string& kind, const CdiHost& host, const std::string& device,
               const std::vector<std::string>& words) {
  return SpecJson(kind, host, Json::array({DeviceJson(host, device, words)}));
}

}  // namespace tandem::cdi
