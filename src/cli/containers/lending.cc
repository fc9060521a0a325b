#include "src/cli/containers/lending.h"

#include <optional>

#include "src/base/json.h"
#include "src/base/layout.h"
#include "src/cli/daemon.h"
#include "src/cli/environment.h"
#include "src/cli/fields.h"
#include "src/usage/usage.h"
#include "src/wire/runtime_dir.h"

namespace tandem::cli {
namespace {

using Json = nlohmann::json;

// Of "any" the GPU with the fewest users, in relation to its memory.
std::optional<Json> FindGpu(const Json& leases, const std::string& wanted) {
  const Json* best = nullptr;
  double least = 0;
  for (const Json& gpu : List(leases, "gpus")) {
    if (wanted != "any" && Text(Member(gpu, "index")) != wanted) continue;
    size_t users = 0;
    for (const Json& lease : List(leases, "leases")) {
      for (const Json& index : List(lease, "gpus")) users += index == Member(gpu, "index");
    }
    const double load = static_cast<double>(users) / (1 + Number(Member(gpu, "budget_bytes")));
    if (best == nullptr || load < least) {
      best = &gpu;
      least = load;
    }
  }
  return best == nullptr ? std::nullopt : std::optional<Json>(*best);
}

// In a user namespace without root nothing tells root's daemon from another user's.
Result<wire::Channel> ConnectFromRuntime() {
  Result<wire::Channel> channel = ConnectRunning();
  if (channel.ok() || channel.error().code != ErrorCode::kRefused) return channel;
  return Error{ErrorCode::kRefused, channel.error().message +
                                        ": containers of a user's own, as of rootless Podman, need "
                                        "that user's own daemon"};
}

// Without a cgroup of its own nothing tells the container's processes from others of its user. They
// then share GPUs as any program of the user's, without a lease.
Result<Json> ShareWithout(const LendOptions& options) {
  if (options.memory.empty() && !options.detached) return Json();
  return Error{ErrorCode::kUnsupported,
               "this container has no cgroup of its own, so that no limit can hold for it: use "
               "tandem.dev/gpu=any, or cgroups of version 2"};
}

}  // namespace

Result<Json> AskLeases(wire::Channel* channel) {
  ASSIGN_OR_RETURN(const std::string answer, AskForJson(channel, wire::Query{"leases"}));
  return Parse(answer);
}

Result<Json> GpuToLend(const Json& leases, const LendOptions& options) {
  std::optional<Json> gpu = FindGpu(leases, options.gpu);
  if (!gpu.has_value()) {
    return Error{ErrorCode::kNotFound,
                 "this machine shares no GPU" + (options.gpu == "any" ? "" : " " + options.gpu) +
                     " (`tandem status` lists them); if a device of a container names it, run "
                     "`tandem cdi generate`"};
  }
  return *std::move(gpu);
}

Result<Json> LendTo(const Container& container, const LendOptions& options) {
  ASSIGN_OR_RETURN(const Layout layout, OwnLayout());
  TRY(CheckLibc(container, layout.shim));
  ASSIGN_OR_RETURN(wire::Channel channel, ConnectFromRuntime());
  if (container.cgroup.empty()) return ShareWithout(options);
  ASSIGN_OR_RETURN(const Json leases, AskLeases(&channel));
  ASSIGN_OR_RETURN(const Json gpu, GpuToLend(leases, options));
  Bytes limit = RawBytes(gpu, "budget_bytes");
  if (!options.memory.empty()) {
    ASSIGN_OR_RETURN(limit, ParseSize(options.memory));
  }
  const Json request = {{"version", 1},
                        {"job", container.id},
                        {"name", container.name},
                        {"uid", container.uid},
                        {"gpus", {Member(gpu, "index")}},
                        {"memory_limit_bytes", limit.count},
                        {"compute_share", options.share},
                        {"cgroup", container.cgroup}};
  const std::string text = AsciiJson(request);
  ASSIGN_OR_RETURN(const std::string answer,
                   AskForJson(&channel, wire::Control{"lease", container.id, 0, text}));
  if (options.detached) {
    TRY(AskForJson(&channel, wire::Control{"suspend", container.name, 0, {}}));
  }
  return Parse(answer);
}

Result<cdi::CdiHost> HostForContainers() {
  ASSIGN_OR_RETURN(const GpuChoice gpu, ChooseGpu(std::nullopt));
  ASSIGN_OR_RETURN(const Layout layout, OwnLayout());
  return cdi::HostOf(layout, gpu.gpu == Gpu::kSoft, wire::RuntimeDir(), OwnEnvironment());
}

}  // namespace tandem::cli
