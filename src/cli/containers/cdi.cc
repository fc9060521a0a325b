#include "src/cli/containers/cdi.h"

#include <fmt/core.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>

#include "src/base/layout.h"
#include "src/cdi/file.h"
#include "src/cdi/spec.h"
#include "src/cli/containers/container.h"
#include "src/cli/control.h"
#include "src/cli/daemon.h"
#include "src/cli/fields.h"
#include "src/cli/print.h"
#include "src/cli/show_commands.h"
#include "src/usage/usage.h"
#include "src/wire/runtime_dir.h"

namespace tandem::cli {
namespace {

using Json = nlohmann::json;

Result<Json> AskLeases(wire::Channel* channel) {
  ASSIGN_OR_RETURN(const std::string answer, AskForJson(channel, wire::Query{"leases"}));
  return Parse(answer);
}

// ---- generate

struct GenerateOptions {
  std::string output, kind = cdi::kCdiKind;
  std::vector<std::string> sizes;
};

Result<std::string> Generate(const GenerateOptions& options) {
  ASSIGN_OR_RETURN(const GpuChoice gpu, SettleGpu(std::nullopt));
  ASSIGN_OR_RETURN(const Layout layout, OwnLayout());
  ASSIGN_OR_RETURN(wire::Channel channel, ConnectRunning());
  ASSIGN_OR_RETURN(const Json leases, AskLeases(&channel));
  std::vector<cdi::CdiGpu> gpus;
  for (const Json& entry : List(leases, "gpus")) {
    gpus.push_back(
        {static_cast<int>(Number(Member(entry, "index"))), RawBytes(entry, "budget_bytes")});
  }
  std::vector<Bytes> sizes;
  for (const std::string& size : options.sizes) {
    ASSIGN_OR_RETURN(const Bytes bytes, ParseSize(size));
    sizes.push_back(bytes);
  }
  const cdi::CdiHost host =
      cdi::HostOf(layout, gpu.gpu == Gpu::kSoft, wire::RuntimeDir(), OwnEnvironment());
  std::string text = cdi::CdiSpec(options.kind, host, gpus, sizes).dump(2) + "\n";
  if (options.output.empty()) return text;
  TRY(cdi::WriteSpec(options.output, text));
  return std::string();
}

// ---- hook

struct HookOptions {
  std::string gpu, memory;
  bool detached = false, end = false;
};

// The GPU's number; of "any" that of which the least is guaranteed, in relation to its memory.
std::optional<Json> ChooseGpu(const Json& leases, const std::string& wanted) {
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
Status ShareWithout(const HookOptions& options) {
  if (options.memory.empty() && !options.detached) return {};
  return Error{ErrorCode::kUnsupported,
               "this container has no cgroup of its own, so that no limit can hold for it: use "
               "tandem.dev/gpu=any, or cgroups of version 2"};
}

Status LendTo(const Container& container, const HookOptions& options) {
  ASSIGN_OR_RETURN(const Layout layout, OwnLayout());
  TRY(CheckLibc(container, layout.shim));
  ASSIGN_OR_RETURN(wire::Channel channel, ConnectFromRuntime());
  if (container.cgroup.empty()) return ShareWithout(options);
  ASSIGN_OR_RETURN(const Json leases, AskLeases(&channel));
  const std::optional<Json> gpu = ChooseGpu(leases, options.gpu);
  if (!gpu.has_value()) {
    return Error{ErrorCode::kNotFound,
                 "there is no GPU " + options.gpu + " any more: run `tandem cdi generate`"};
  }
  Bytes limit = RawBytes(*gpu, "budget_bytes");
  if (!options.memory.empty()) {
    ASSIGN_OR_RETURN(limit, ParseSize(options.memory));
  }
  const Json request = {{"version", 1},
                        {"job", container.id},
                        {"name", container.name},
                        {"uid", container.uid},
                        {"gpus", {Member(*gpu, "index")}},
                        {"memory_limit_bytes", limit.count},
                        {"cgroup", container.cgroup}};
  const std::string text = request.dump(-1, ' ', true, Json::error_handler_t::replace);
  TRY(AskForJson(&channel, wire::Control{"lease", container.id, 0, text}));
  if (options.detached) {
    TRY(AskForJson(&channel, wire::Control{"suspend", container.name, 0, {}}));
  }
  return {};
}

int Hook(const HookOptions& options) {
  const std::string state{std::istreambuf_iterator<char>(std::cin), {}};
  const Result<Container> container = ReadContainer(state);
  if (!container.ok()) return Fail(1, container.error().message);
  if (const auto gpu = SettleGpu(std::nullopt); !gpu.ok()) return Fail(1, gpu.error().message);
  if (options.end) {
    // The daemon may be away; it ends the lease by the cgroup then.
    if (Result<wire::Channel> channel = ConnectRunning(); channel.ok()) {
      (void)AskForJson(&*channel, wire::Control{"end-lease", container->id, 0, ""});
    }
    return 0;
  }
  const Status lent = LendTo(*container, options);
  return lent.ok() ? 0 : Fail(1, lent.error().message);
}

// ---- attach, detach

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

// What the container gets, before it goes on.
Status Prepare(const NamedLease& lease, const AttachOptions& options) {
  Bytes limit;
  if (!options.memory.empty()) {
    ASSIGN_OR_RETURN(limit, ParseSize(options.memory));
  }
  ASSIGN_OR_RETURN(wire::Channel channel, ConnectRunning());
  if (!options.gpu.empty()) {
    TRY(AskForJson(&channel, wire::Control{"move-lease", lease.job, 0, options.gpu}));
  }
  if (!options.memory.empty()) {
    TRY(AskForJson(&channel, wire::Control{"limit", lease.name, limit.count, {}}));
  }
  return {};
}

int Attach(const AttachOptions& options) {
  const Result<NamedLease> lease = LeaseOf(options.target);
  if (!lease.ok()) return Fail(1, lease.error().message);
  const Status prepared = Prepare(*lease, options);
  if (!prepared.ok()) return Fail(1, prepared.error().message);
  ControlOptions order;
  order.target = lease->name;
  order.what = "resume";
  order.json = options.json;
  return Control(order);
}

int Detach(const AttachOptions& options) {
  const Result<NamedLease> lease = LeaseOf(options.target);
  if (!lease.ok()) return Fail(1, lease.error().message);
  ControlOptions order;
  order.what = "suspend";
  order.target = lease->name;
  order.timeout = options.timeout;
  order.fail_after = options.fail_after;
  order.json = options.json;
  return Control(order);
}

void AddCdi(CLI::App* app, std::function<int()>* action) {
  auto what = std::make_shared<std::string>();
  auto options = std::make_shared<GenerateOptions>();
  auto hook = std::make_shared<HookOptions>();
  CLI::App* cdi = app->add_subcommand("cdi", "Offer GPUs to containers as devices (CDI)");
  cdi->add_option("action", *what, "generate, or hook, which container runtimes call")
      ->required()
      ->type_name("ACTION")
      ->check(usage::IsOneOf({"generate", "hook"}));
  cdi->add_option("--output", options->output, "generate: write to FILE, not to standard output")
      ->type_name("FILE");
  cdi->add_option("--kind", options->kind, "generate: the devices' vendor and class")
      ->type_name("VENDOR/CLASS")
      ->capture_default_str();
  cdi->add_option("--size", options->sizes,
                  "generate: offer this limit, such as 20G; again for more. Default: each GiB")
      ->type_name("SIZE")
      ->check(usage::IsSize())
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  cdi->add_option("--gpu", hook->gpu, "hook: the GPU's number, or any")->type_name("GPU");
  cdi->add_option("--memory", hook->memory, "hook: memory that the container may allocate")
      ->type_name("SIZE")
      ->check(usage::IsSize());
  cdi->add_flag("--detached", hook->detached, "hook: without the GPU until `tandem attach`");
  cdi->add_flag("--end", hook->end, "hook: the container has ended");
  cdi->footer(
      "Container runtimes read /etc/cdi and /var/run/cdi. `--device tandem.dev/gpu=0` then gives "
      "a\n"
      "container the GPU 0, `=0-20g` up to 20 GiB of it, `=any` the GPU with the fewest "
      "containers,\n"
      "and `=none` one that `tandem attach` grants later. On NVIDIA's GPUs the container needs\n"
      "NVIDIA's device, too: --device nvidia.com/gpu=0 --device tandem.dev/gpu=0-20g.\n"
      "The daemon must run. The specification names `tandem cdi hook`: the runtime gives it the\n"
      "container's state on standard input, as the OCI runtime specification says.\n"
      "\n"
      "Examples:\n"
      "  tandem cdi generate --output /etc/cdi/tandem.json\n"
      "  podman run --rm --device tandem.dev/gpu=0-20g IMAGE python train.py");
  cdi->callback([=] {
    if (*what == "hook") {
      *action = [=] { return Hook(*hook); };
      return;
    }
    *action = [=] {
      const Result<std::string> text = Generate(*options);
      return text.ok() ? Print(*text) : Fail(1, text.error().message);
    };
  });
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

void AddContainers(CLI::App* app, std::function<int()>* action) {
  AddCdi(app, action);
  auto attach_options = std::make_shared<AttachOptions>();
  CLI::App* attach =
      AddOfContainer(app, "attach", "Give a running container its GPU", attach_options);
  attach->add_option("--memory", attach_options->memory, "Memory that it may allocate, e.g. 8G")
      ->type_name("SIZE")
      ->check(usage::IsLimit());
  attach->add_option("--gpu", attach_options->gpu, "Another GPU, where no program has used one yet")
      ->type_name("NUMBER")
      ->check(CLI::Range(0, 1023));
  attach->footer(
      "The container was started with a device of Tandem: tandem.dev/gpu=none, or another one "
      "that\n"
      "`tandem detach` has taken away. Its programs go on where they wait. Nothing is restarted.\n"
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
