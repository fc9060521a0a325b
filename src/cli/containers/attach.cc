#include "src/cli/containers/attach.h"

#include <fmt/core.h>
#include <poll.h>

#include <fstream>
#include <iterator>
#include <memory>

#include "src/base/duration.h"
#include "src/base/json.h"
#include "src/cli/containers/device_cgroup.h"
#include "src/cli/containers/driver_files.h"
#include "src/cli/containers/lending.h"
#include "src/cli/containers/mounts.h"
#include "src/cli/containers/running.h"
#include "src/cli/control.h"
#include "src/cli/daemon.h"
#include "src/cli/fields.h"
#include "src/cli/print.h"
#include "src/cli/show_commands.h"
#include "src/usage/usage.h"

namespace tandem::cli {
namespace {

using Json = nlohmann::json;

constexpr int kMovePollMs = 20;

struct AttachOptions {
  std::string target, memory, gpu, timeout = "60s", fail_after;
  bool json = false;
};

// The lease of a container, as far as orders need it.
struct NamedLease {
  std::string job, name;
};

// By the container's id, the beginning of it, its hostname, or one of its processes.
Result<NamedLease> LeaseOf(const std::string& target) {
  ASSIGN_OR_RETURN(wire::Channel channel, ConnectRunning());
  ASSIGN_OR_RETURN(const Json leases, AskLeases(&channel));
  std::string cgroups;
  if (target.find_first_not_of("0123456789") == std::string::npos) {
    std::ifstream file("/proc/" + target + "/cgroup");
    cgroups.assign(std::istreambuf_iterator<char>(file), {});
  }
  std::vector<NamedLease> found;
  for (const Json& lease : List(leases, "leases")) {
    const std::string cgroup = RawText(lease, "cgroup"), name = RawText(lease, "name");
    if (cgroup.empty()) continue;  // of no container
    const bool by_process = cgroups.find(":" + cgroup + "\n") != std::string::npos;
    const std::string job = RawText(lease, "job");
    const bool by_id = target.size() >= 4 && job.starts_with(target);
    if (by_process || by_id || name == target) found.push_back({job, name});
  }
  if (found.size() == 1) return found.front();
  if (found.empty()) {
    return Error{ErrorCode::kNotFound,
                 "no container \"" + target +
                     "\" has Tandem's device: start it with --device tandem.dev/gpu=none, or =0. "
                     "`tandem lease list` shows those that have one"};
  }
  return Error{ErrorCode::kInvalid,
               "several containers are called \"" + target + "\": give more of the id"};
}

// Asks until no program of the container is elsewhere. The daemon sets the bounds.
Status MoveTo(wire::Channel* channel, const std::string& job, const std::string& gpu) {
  const Instant say_at = MonotonicNow() + Seconds(1);
  bool said = false;
  for (;;) {
    ASSIGN_OR_RETURN(const std::string answer,
                     AskForJson(channel, wire::Control{"move-lease", job, 0, gpu}));
    ASSIGN_OR_RETURN(const Json lease, Parse(answer));
    const std::vector<Json>& moving = List(lease, "moving");
    if (moving.empty()) return {};
    if (!said && MonotonicNow() >= say_at) {
      said = true;
      fmt::print(stderr,
                 "tandem: waiting up to 1 min for process {} to move to gpu{}. Ctrl-C stops only "
                 "the waiting\n",
                 Text(moving.front()), gpu);
    }
    poll(nullptr, 0, kMovePollMs);
  }
}

// What the container gets, before it goes on.
Status Prepare(const NamedLease& lease, const AttachOptions& options) {
  Bytes limit;
  if (!options.memory.empty()) {
    ASSIGN_OR_RETURN(limit, ParseSize(options.memory));
  }
  ASSIGN_OR_RETURN(wire::Channel channel, ConnectRunning());
  if (!options.gpu.empty()) {
    TRY(MoveTo(&channel, lease.job, options.gpu));
  }
  if (!options.memory.empty()) {
    TRY(AskForJson(&channel, wire::Control{"limit", lease.name, limit.count, {}}));
  }
  return {};
}

// NVIDIA's driver for a container that was started without it; nothing where it needs none.
Result<DriverFiles> DriverFor(const RunningContainer& running, const cdi::CdiHost& host,
                              const Json& lease) {
  if (host.software || HasNvidiaDevices(running)) return DriverFiles{};
  ASSIGN_OR_RETURN(wire::Channel channel, ConnectRunning());
  ASSIGN_OR_RETURN(const std::string answer, AskForJson(&channel, wire::Query{"status"}));
  ASSIGN_OR_RETURN(const Json status, Parse(answer));
  std::string uuid;
  for (const Json& gpu : List(status, "gpus")) {
    if (Member(gpu, "index") == List(lease, "gpus").front()) uuid = RawText(gpu, "uuid");
  }
  ASSIGN_OR_RETURN(const DriverPlaces places, PlacesOfDriver());
  return DriverFilesFor(places, running.container.root, uuid);
}

// What a runtime does at the start of a container with a GPU. A failure leaves nothing of it.
Status BringIn(const RunningContainer& running, const cdi::CdiHost& host, const Json& lease) {
  ASSIGN_OR_RETURN(std::vector<cdi::Mount> mounts, MountsFor(running, host));
  ASSIGN_OR_RETURN(const DriverFiles driver, DriverFor(running, host, lease));
  ASSIGN_OR_RETURN(DeviceGrant grant, DeviceGrant::Allow(DeviceCgroupOf(running), driver.devices));
  mounts.insert(mounts.end(), driver.mounts.begin(), driver.mounts.end());
  TRY(MountIn(running.pid, mounts));
  grant.Keep();
  return {};
}

// Gives a container that has no device of Tandem's one. A failure leaves no lease, and no mount.
Result<Json> AttachRunning(const AttachOptions& options) {
  ASSIGN_OR_RETURN(const RunningContainer running, FindRunning(options.target));
  ASSIGN_OR_RETURN(const cdi::CdiHost host, HostForContainers());
  LendOptions lend;
  lend.gpu = options.gpu.empty() ? "any" : options.gpu;
  lend.memory = options.memory;
  ASSIGN_OR_RETURN(Json lease, LendTo(running.container, lend));
  const Status brought = BringIn(running, host, lease);
  if (!brought.ok()) {
    ASSIGN_OR_RETURN(wire::Channel channel, ConnectRunning());
    TRY(AskForJson(&channel, wire::Control{"end-lease", running.container.id, 0, ""}));
    return brought.error();
  }
  if (host.software) lease["environment"] = cdi::EditsOf(host).environment;
  return lease;
}

int ShowAttached(const Json& lease, bool json) {
  if (json) return Print(AsciiJson(lease) + "\n");
  std::string text = fmt::format("{}: programs that start in it from now on share GPU {}\n",
                                 RawText(lease, "name"), Text(List(lease, "gpus").front()));
  std::string variables;
  for (const Json& variable : List(lease, "environment")) {
    variables += " --env " + variable.get<std::string>();
  }
  if (!variables.empty()) {
    text += "They need the software GPU's variables, such as podman exec" + variables + "\n";
  }
  return Print(text);
}

int Attach(const AttachOptions& options) {
  if (const auto daemon = ConnectRunning(); !daemon.ok()) return Fail(daemon.error());
  const Result<NamedLease> lease = LeaseOf(options.target);
  if (!lease.ok() && lease.error().code == ErrorCode::kNotFound) {
    const Result<Json> attached = AttachRunning(options);
    return attached.ok() ? ShowAttached(*attached, options.json) : Fail(attached.error());
  }
  if (!lease.ok()) return Fail(lease.error());
  const Status prepared = Prepare(*lease, options);
  if (!prepared.ok()) return Fail(prepared.error());
  ControlOptions order;
  order.target = lease->name;
  order.what = "resume";
  order.json = options.json;
  return Control(order);
}

int Detach(const AttachOptions& options) {
  const Result<NamedLease> lease = LeaseOf(options.target);
  if (!lease.ok()) return Fail(lease.error());
  ControlOptions order;
  order.what = "suspend";
  order.target = lease->name;
  order.timeout = options.timeout;
  order.fail_after = options.fail_after;
  order.json = options.json;
  return Control(order);
}

CLI::App* AddOfContainer(CLI::App* app, const char* name, const char* help,
                         const std::shared_ptr<AttachOptions>& options) {
  CLI::App* command = app->add_subcommand(name, help);
  command
      ->add_option("container", options->target,
                   "The container's id, its first characters, its hostname, or a process in it")
      ->required()
      ->type_name("CONTAINER");
  command->add_flag("--json", options->json, "One JSON object on one line");
  return command;
}

}  // namespace

void AddAttach(CLI::App* app, std::function<int()>* action) {
  auto attach_options = std::make_shared<AttachOptions>();
  CLI::App* attach =
      AddOfContainer(app, "attach", "Give a running container its GPU", attach_options);
  attach->add_option("--memory", attach_options->memory, "Memory that it may allocate, e.g. 8G")
      ->type_name("SIZE")
      ->check(usage::IsLimit());
  attach->add_option("--gpu", attach_options->gpu, "Another GPU: programs that use one move there")
      ->type_name("NUMBER")
      ->check(CLI::Range(0, 1023));
  attach->footer(
      "A container that was started with a device of Tandem goes on where its programs wait:\n"
      "tandem.dev/gpu=none, or another one that `tandem detach` has taken away. Nothing is "
      "restarted.\n"
      "Any other container is given a GPU as well, with NVIDIA's driver if it has none, for "
      "programs\n"
      "that it starts from then on. That needs root.\n"
      "\n"
      "Examples:\n"
      "  tandem attach 4104622593fa --memory 8G\n"
      "  tandem attach 4104622593fa --gpu 1\n"
      "  tandem attach $(podman container inspect -f '{{.Id}}' train)");
  attach->callback([=] { *action = [=] { return Attach(*attach_options); }; });
  auto detach_options = std::make_shared<AttachOptions>();
  CLI::App* detach =
      AddOfContainer(app, "detach", "Take the GPU from a running container", detach_options);
  detach
      ->add_option("--timeout", detach_options->timeout,
                   "Wait this long for the memory to leave the GPU; 0: do not wait")
      ->type_name("TIME")
      ->check(usage::IsTime())
      ->capture_default_str();
  detach
      ->add_option("--fail-after", detach_options->fail_after,
                   "After this time calls that need the GPU fail. Default: they wait")
      ->type_name("TIME")
      ->check(usage::IsTime());
  detach->footer(
      "Work under way ends, memory leaves for the host, and calls that need the GPU wait until\n"
      "`tandem attach`. Programs are not told. With --fail-after they are: their calls then "
      "return\n"
      "CUDA_ERROR_DEVICE_UNAVAILABLE, and succeed again after `tandem attach`.\n"
      "\n"
      "Examples:\n"
      "  tandem detach 4104622593fa\n"
      "  tandem detach train --fail-after 10min\n"
      "  tandem detach train --timeout 5s --json");
  detach->callback([=] { *action = [=] { return Detach(*detach_options); }; });
}

}  // namespace tandem::cli
