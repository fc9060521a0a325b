#include "src/cli/containers/cdi.h"

#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>

#include "src/base/json.h"
#include "src/cdi/file.h"
#include "src/cdi/spec.h"
#include "src/cli/containers/container.h"
#include "src/cli/containers/lending.h"
#include "src/cli/daemon.h"
#include "src/cli/fields.h"
#include "src/cli/print.h"
#include "src/cli/share.h"
#include "src/usage/usage.h"

namespace tandem::cli {
namespace {

using Json = nlohmann::json;

// ---- generate

struct GenerateOptions {
  std::string output, kind = cdi::kCdiKind;
  std::string name;  // of one device with the hook's terms; empty: all GPUs and sizes
  std::vector<std::string> sizes;
};

std::vector<std::string> WordsOf(const LendOptions& lend) {
  std::vector<std::string> words = {"--gpu", lend.gpu.empty() ? "any" : lend.gpu};
  if (!lend.memory.empty()) words.insert(words.end(), {"--memory", lend.memory});
  if (!lend.share.empty()) words.insert(words.end(), {"--compute-share", lend.share});
  if (lend.detached) words.push_back("--detached");
  return words;
}

// All GPUs of the daemon, in all sizes.
Result<Json> SpecOfGpus(const GenerateOptions& options, const cdi::CdiHost& host) {
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
  return cdi::CdiSpec(options.kind, host, gpus, sizes);
}

// Whether the daemon's GPUs can be lent on these terms.
Status CheckTerms(wire::Channel* channel, LendOptions terms) {
  if (terms.gpu.empty()) terms.gpu = "any";
  ASSIGN_OR_RETURN(const Json leases, AskLeases(channel));
  ASSIGN_OR_RETURN(const Json chosen, GpuToLend(leases, terms));
  if (terms.memory.empty()) return {};
  ASSIGN_OR_RETURN(const Bytes memory, ParseSize(terms.memory));
  Bytes most;
  for (const Json& gpu : List(leases, "gpus")) {
    if (terms.gpu == "any" || gpu == chosen) most = std::max(most, RawBytes(gpu, "budget_bytes"));
  }
  if (memory <= most) return {};
  return Error{ErrorCode::kInvalid, "--memory " + terms.memory +
                                        " is more than containers can share of a GPU, " +
                                        FormatBytes(most)};
}

Result<std::string> Generate(const GenerateOptions& options, const LendOptions& terms) {
  ASSIGN_OR_RETURN(const cdi::CdiHost host, HostForContainers());
  Json spec;
  if (options.name.empty()) {
    ASSIGN_OR_RETURN(spec, SpecOfGpus(options, host));
  } else {
    // Without a daemon the hook is the one that says so.
    if (Result<wire::Channel> channel = ConnectRunning(); channel.ok()) {
      TRY(CheckTerms(&*channel, terms));
    }
    spec = cdi::CdiSpecOf(options.kind, host, options.name, WordsOf(terms));
  }
  std::string text = JsonText(spec, 2) + "\n";
  if (options.output.empty()) return text;
  TRY(cdi::WriteSpec(options.output, text));
  return std::string();
}

// ---- hook

struct HookOptions {
  LendOptions lend;
  bool end = false;
};

int Hook(const HookOptions& options) {
  const std::string state{std::istreambuf_iterator<char>(std::cin), {}};
  const Result<Container> container = ReadContainer(state);
  if (!container.ok()) return Fail(container.error());
  if (const auto gpu = ChooseGpu(std::nullopt); !gpu.ok()) return Fail(gpu.error());
  if (options.end) {
    // The daemon may be away; it ends the lease by the cgroup then.
    if (Result<wire::Channel> channel = ConnectRunning(); channel.ok()) {
      (void)AskForJson(&*channel, wire::Control{"end-lease", container->id, 0, ""});
    }
    return 0;
  }
  const Result<Json> lent = LendTo(*container, options.lend);
  return lent.ok() ? 0 : Fail(lent.error());
}

}  // namespace

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
  cdi->add_option("--name", options->name,
                  "generate: one device of that name, with the terms of a hook")
      ->type_name("NAME");
  cdi->add_option("--gpu", hook->lend.gpu, "hook: the GPU's number, or any")->type_name("GPU");
  cdi->add_option("--memory", hook->lend.memory, "hook: memory that the container may allocate")
      ->type_name("SIZE")
      ->check(usage::IsSize());
  cdi->add_option("--compute-share", hook->lend.share, "hook: share of the time, such as 2 or 30%")
      ->type_name("SHARE")
      ->check(IsShare());
  cdi->add_flag("--detached", hook->lend.detached, "hook: without the GPU until `tandem attach`");
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
      "  tandem cdi generate --name small --memory 8G --compute-share 30% --output "
      "/etc/cdi/small.json\n"
      "  podman run --rm --device tandem.dev/gpu=0-20g IMAGE python train.py");
  cdi->callback([=] {
    if (*what == "hook") {
      *action = [=] { return Hook(*hook); };
      return;
    }
    *action = [=] {
      const Result<std::string> text = Generate(*options, hook->lend);
      return text.ok() ? Print(*text) : Fail(text.error());
    };
  });
}

}  // namespace tandem::cli
