// tandem: what people type. Options are declared here; what they do is in the other files.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "src/cli/arguments.h"
#include "src/cli/completion.h"
#include "src/cli/containers/attach.h"
#include "src/cli/containers/cdi.h"
#include "src/cli/control.h"
#include "src/cli/doctor/doctor.h"
#include "src/cli/doctor/probe.h"
#include "src/cli/lease.h"
#include "src/cli/names.h"
#include "src/cli/plan.h"
#include "src/cli/policy.h"
#include "src/cli/print.h"
#include "src/cli/python.h"
#include "src/cli/report/report.h"
#include "src/cli/run.h"
#include "src/cli/serve.h"
#include "src/cli/share.h"
#include "src/cli/show_commands.h"
#include "src/cli/soft_gpu.h"
#include "src/core/class_names.h"
#include "src/core/policy.h"
#include "src/usage/manual.h"
#include "src/usage/usage.h"
#include "src/wire/messages.h"

namespace tandem::cli {
namespace {

// An order about TARGET; options that only this one has are the caller's to add.
std::pair<CLI::App*, std::shared_ptr<ControlOptions>> AddOrder(CLI::App* app, const char* name,
                                                               const char* help,
                                                               std::function<int()>* action) {
  auto options = std::make_shared<ControlOptions>();
  options->what = name;
  CLI::App* command = app->add_subcommand(name, help);
  command
      ->add_option("target", options->target,
                   "A session's number, or the name of a run: `tandem ps` has both")
      ->required()
      ->type_name("SESSION|RUN");
  command->add_flag("--json", options->json,
                    "Print the sessions concerned as `tandem ps --json` does");
  AddGpu(command, &options->gpu);
  command->callback([=] { *action = [=] { return Control(*options); }; });
  return {command, options};
}

CLI::Validator LimitOrAll() {
  const CLI::Validator limit = usage::IsLimit();
  return {[limit](std::string& text) { return text == "all" ? "" : limit(text); }, ""};
}

void AddOrders(CLI::App* app, std::function<int()>* action) {
  const auto [suspend, suspend_options] =
      AddOrder(app, "suspend", "Suspend a program and move its memory to the host", action);
  suspend
      ->add_option("--timeout", suspend_options->timeout,
                   "Wait this long for the memory to leave the card; 0: do not wait")
      ->type_name("TIME")
      ->check(usage::IsTime())
      ->capture_default_str();
  suspend->footer(
      "Tandem moves the session's memory to the host. Contexts and memory that cannot be\n"
      "swapped (arrays, managed and shared memory) stay on the card; the answer says how much\n"
      "that is, with --json as fixed_bytes. Calls that need the GPU wait. After `tandem resume`\n"
      "the program continues where it was. A run's name means all its sessions, also later\n"
      "ones; a number means one session. The suspension outlives the daemon.\n"
      "Exits 1 on timeout; the suspension still takes effect.\n"
      "Other sessions may use the room for memory that cannot be swapped. The resumed session\n"
      "then waits until they return it, and `tandem ps` says so.\n"
      "\n"
      "Examples:\n"
      "  tandem suspend 3\n"
      "  tandem suspend mnist --timeout 5s --json");
  CLI::App* const resume = AddOrder(app, "resume", "Resume a suspended program", action).first;
  resume->footer("Examples:\n  tandem resume 3\n  tandem resume mnist");
  const auto [limit, limit_options] =
      AddOrder(app, "limit", "Change the memory limit of a run", action);
  limit->add_option("--memory", limit_options->memory, "The new limit, e.g. 4G; all: no limit")
      ->required()
      ->type_name("SIZE")
      ->check(LimitOrAll());
  limit->footer(
      "It holds at once, for all the run has and will start, and is what its programs see as the\n"
      "size of the card. A run that has more already keeps that, and gets no more.\n\n"
      "Examples:\n  tandem limit 3 --memory 4G\n  tandem limit mnist --memory all");
}

CLI::Validator SizeOrAuto() {
  const CLI::Validator size = usage::IsSize();
  return {[size](std::string& text) { return text == "auto" ? "" : size(text); }, ""};
}

CLI::Validator IsPolicy() {
  std::vector<std::string> names;
  for (const core::PolicyName& policy : core::PolicyNames()) names.emplace_back(policy.name);
  return usage::IsOneOf(std::move(names), core::IsPolicyName);
}

void AddPolicy(CLI::App* app, std::function<int()>* action) {
  auto options = std::make_shared<PolicyOptions>();
  CLI::App* command = app->add_subcommand("policy", "Show or set the scheduling policy of a GPU");
  CLI::Option* gpu =
      command->add_option("target", options->target, "gpu0, gpu1, … or all")->type_name("GPU");
  command->add_option("policy", options->policy, "The new policy")
      ->type_name("POLICY")
      ->check(IsPolicy())
      ->needs(gpu);
  command->add_flag("--json", options->json, "One JSON object on one line");
  AddGpu(command, &options->gpu);
  command->footer(
      "Without POLICY, the command lists the policy of each GPU and all policies. A new policy\n"
      "takes effect at once, also for sessions that wait, until the daemon ends. The daemon\n"
      "starts with `tandemd --policy`. Only root or the daemon's owner can change the policy.\n"
      "\n"
      "Examples:\n"
      "  tandem policy\n"
      "  tandem policy gpu0 fcfs\n"
      "  tandem policy all interactive --json");
  command->callback([=] {
    if (!options->target.empty() && options->policy.empty()) {
      throw CLI::ValidationError("policy",
                                 "say which GPU and which policy, as in `tandem policy gpu0 "
                                 "fcfs`; `tandem policy` lists both");
    }
    *action = [=] { return ShowOrSetPolicy(*options); };
  });
}

void AddShare(CLI::App* app, std::function<int()>* action) {
  auto options = std::make_shared<ShareOptions>();
  auto words = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app->add_subcommand("share", "Show or set shares of GPU time");
  command->add_option("words", *words, "A session's number or a run's name, then its share")
      ->type_name("[SESSION|RUN] SHARE")
      ->expected(0, 2);
  command->add_option("--user", options->user, "Set the share of all programs of a user")
      ->type_name("USER");
  command->add_flag("--json", options->json, "One JSON object on one line");
  AddGpu(command, &options->gpu);
  command->footer(
      "A SHARE is a weight, such as 2, or a part of the time, such as 30%. Sessions that want\n"
      "the card divide it in proportion to their weights; the default weight is 1. A session\n"
      "with 30% gets that part while others want the card, and they divide the rest. Time that\n"
      "a session does not use goes to the others.\n"
      "The time is divided among users first, then among the sessions of each user: 30% of a\n"
      "session is a part of its user's time. A run's share is that of each of its sessions.\n"
      "Shares count under the policy `fair` (`tandem policy`), until the daemon ends.\n"
      "Without SHARE, the command lists all shares. Only root or the daemon's owner can set a\n"
      "user's share; each user sets those of own sessions.\n"
      "\n"
      "Examples:\n"
      "  tandem share\n"
      "  tandem share mnist 2\n"
      "  tandem share 3 30%\n"
      "  tandem share --user anna 50%");
  command->callback([=] {
    const size_t wanted = options->user.empty() ? 2 : 1;
    if (words->size() != wanted && (!words->empty() || !options->user.empty())) {
      throw CLI::ValidationError(
          "share",
          "say whose and what, as in `tandem share mnist 2` or `tandem share --user anna "
          "30%`");
    }
    if (!words->empty()) options->share = words->back();
    if (!words->empty()) {
      const std::string mistake = IsShare()(options->share);
      if (!mistake.empty()) throw CLI::ValidationError("share", mistake);
    }
    if (words->size() == 2) options->target = words->front();
    *action = [=] { return ShowOrSetShare(*options); };
  });
}

CLI::App* AddRun(CLI::App* app, RunOptions* options, std::function<int()>* action) {
  CLI::App* command = app->add_subcommand("run", "Run a program that shares the GPU");
  CLI::Option* memory =
      command->add_option("--memory", options->memory, "Upper limit on its GPU memory, e.g. 8G")
          ->type_name("SIZE")
          ->check(usage::IsLimit());
  CLI::Option* oversubscribe = command
                                   ->add_flag("--oversubscribe", options->oversubscribe,
                                              "Allow a limit above the memory of the card")
                                   ->needs(memory);
  CLI::Option* name = command->add_option("--name", options->name, "Name of the run in listings")
                          ->type_name("NAME")
                          ->check(usage::IsRunName());
  CLI::Option* of_class =
      command->add_option("--class", options->of_class, "Class of the work; default: interactive")
          ->type_name("CLASS")
          ->check(usage::IsOneOf({std::begin(core::kClassNames), std::end(core::kClassNames)}));
  AddGpu(command, &options->gpu);
  command->add_flag("--quiet", options->quiet, "Print no lines about waits and the kind of GPU");
  command
      ->add_flag("--unshared", options->unshared,
                 "Run it beside Tandem: its memory stays on the card")
      ->excludes(memory)
      ->excludes(oversubscribe)
      ->excludes(name)
      ->excludes(of_class);
  command->add_option("program", "The program and its arguments")
      ->required()
      ->type_name("[ARG...]");
  command->footer(
      "The limit holds for the program and all processes that it starts; they see it as the\n"
      "size of the card. Contexts do not count. It reserves nothing. Default: all that can be\n"
      "shared.\n"
      "With --oversubscribe, memory beyond the card stays in host memory. Kernels reach it over\n"
      "the bus, which is many times slower.\n"
      "The class counts under the policy `priority` (`tandem policy`). Opportunistic work runs\n"
      "in the pauses of all others. Production's memory stays on the card. Only root or the\n"
      "daemon's owner can start production.\n"
      "If the program waits for a GPU for more than a second, stderr says why. A second Ctrl-C\n"
      "within one wait ends a program that handles the first one itself.\n"
      "TANDEM_GPU selects the kind of GPU. By default it is the card if NVIDIA's driver is\n"
      "installed, and else the software GPU; stderr then says so once. A driver that does not\n"
      "work ends the run with status 125. Each kind has a daemon of its own; listings, too,\n"
      "take --gpu.\n"
      "\n"
      "The exit status, the signals and the terminal are the program's own. If it could not be\n"
      "started: 127 it does not exist, 126 it cannot be executed, 125 anything else.\n"
      "\n"
      "Examples:\n"
      "  tandem run python3 train.py\n"
      "  tandem run --memory 8G --name mnist -- python3 train.py --epochs 3\n"
      "  tandem run --memory 100G --oversubscribe -- ./simulate\n"
      "  tandem run --class opportunistic -- ./search\n"
      "  TANDEM_GPU=soft tandem run -- ffmpeg -init_hw_device cuda …");
  command->callback([=] { *action = [=] { return Run(*options); }; });
  return command;
}

void AddSoftGpu(CLI::App* app, std::function<int()>* action) {
  auto options = std::make_shared<SoftGpuOptions>();
  CLI::App* command = app->add_subcommand("gpu", "Show or set the size of the software GPU");
  command
      ->add_option("kind", options->kind,
                   "The kind of GPU; only the software GPU has a size to set")
      ->required()
      ->type_name("KIND")
      ->check(usage::IsOneOf({"soft"}));
  command
      ->add_option("--memory", options->memory,
                   "Memory of each card, e.g. 16G; auto: half of the host's free memory")
      ->type_name("SIZE")
      ->check(SizeOrAuto());
  command->add_option("--count", options->count, "Number of cards")
      ->type_name("N")
      ->check(CLI::Range(1, kMaxSoftGpus).description(""));
  command->add_flag("--json", options->json, "One JSON object on one line");
  command->footer(
      "Without options it shows the size. The setting is this user's, and a file keeps it. It "
      "does\n"
      "not count where TANDEM_SOFT_VRAM or TANDEM_SOFT_DEVICES is set. Memory of the host is "
      "taken\n"
      "when a program writes to it. A daemon that runs keeps its cards until it ends.\n\n"
      "Examples:\n  tandem gpu soft\n  tandem gpu soft --memory 16G --count 2\n"
      "  tandem gpu soft --memory auto --count 1");
  command->callback([=] { *action = [=] { return ShowOrSetSoftGpu(*options); }; });
}

void AddPlan(CLI::App* app, std::function<int()>* action) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* command =
      app->add_subcommand("plan", "Predict waits, and how many users one GPU can serve");
  command->add_option("--users", options->users, "Number of users")->required()->type_name("N");
  command->add_option("--gpus", options->gpus, "Number of GPUs")
      ->type_name("N")
      ->capture_default_str();
  const auto add_time = [&](const char* name, std::string* value, const char* help) {
    command->add_option(name, *value, help)
        ->type_name("TIME")
        ->check(usage::IsTime())
        ->capture_default_str();
  };
  add_time("--burst", &options->burst, "Mean GPU time of a job");
  add_time("--edit", &options->edit,
           "Mean time from the end of a job to the next, while the user is present");
  add_time("--away", &options->away, "Mean length of an absence");
  add_time("--stay", &options->stay, "Mean time between absences");
  add_time("--bound", &options->bound, "Wait that at most 1 of 100 jobs may exceed");
  add_time("--idle-timeout", &options->timeout,
           "Idle time after which an exclusive GPU is taken back");
  const auto add_bytes = [&](const char* name, std::string* value, const char* help) {
    command->add_option(name, *value, help)
        ->type_name("SIZE")
        ->check(usage::IsSize())
        ->capture_default_str();
  };
  add_bytes("--memory", &options->memory, "Memory that each user's program keeps on a card");
  add_bytes("--card", &options->card, "Memory of a card");
  add_bytes("--bus", &options->bus, "Bytes per second between the card and the host");
  command->add_option("--svg", options->svg, "Draw the wait against the number of users")
      ->type_name("FILE");
  command->add_flag("--json", options->json, "One JSON object on one line");
  command->footer(
      "All times are means. Jobs are served in the order of arrival; the wait of a job is the\n"
      "time from its submission to its start. The result is computed, not simulated\n"
      "(docs/plan.md).\n"
      "\n"
      "Examples:\n"
      "  tandem plan --users 10 --burst 30s --edit 5m --away 1h\n"
      "  tandem plan --users 30 --gpus 2 --memory 20G --card 80G --svg wait.svg");
  command->callback([=] { *action = [=] { return ShowPlan(*options); }; });
}

void AddDoctor(CLI::App* app, std::function<int()>* action) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* command =
      app->add_subcommand("doctor", "Check this machine, and say what to do about each finding");
  command->add_option("program", options->program, "A program: can it be shared?")
      ->type_name("PROGRAM");
  command->add_flag("--json", options->json, "One JSON object on one line");
  command->add_option("--bundle", options->bundle, "Also write a file for a bug report")
      ->type_name("FILE");
  AddGpu(command, &options->gpu);
  command->footer(
      "It looks at the driver, Tandem's files, the daemon, limits of the host and other users of\n"
      "the card. It starts no daemon and changes nothing. The status is 0 if it finds no\n"
      "problem, and else 1; notes and warnings are no problems.\n"
      "The file of --bundle is JSON, for people to read before they send it. It has no names of\n"
      "users, hosts, programs and runs, no paths and no variables.\n"
      "\n"
      "Examples:\n"
      "  tandem doctor\n"
      "  tandem doctor ./simulate\n"
      "  tandem doctor --bundle report.json\n"
      "  tandem doctor --json | jq -r '.checks[].findings[] | select(.severity == \"problem\")'");
  command->callback([=] { *action = [=] { return Doctor(*options); }; });
}

// Processes started from here may change their directory.
void MakeRuntimeDirAbsolute() {
  const char* dir = std::getenv("TANDEM_RUNTIME_DIR");
  if (dir == nullptr || *dir == 0 || *dir == '/') return;
  std::error_code error;
  const std::string absolute = std::filesystem::absolute(dir, error);
  if (!error) setenv("TANDEM_RUNTIME_DIR", absolute.c_str(), 1);
}

std::string VersionText() {
  return fmt::format("tandem {} (protocol {})", TANDEM_VERSION, wire::kVersion);
}

// The commands about the program itself.
void AddOwn(CLI::App* app, std::function<int()>* action) {
  auto shell = std::make_shared<std::string>();
  CLI::App* completion = app->add_subcommand("completion", "Print a shell's completion of tandem");
  completion->add_option("shell", *shell, "The shell")
      ->required()
      ->type_name("SHELL")
      ->check(usage::IsOneOf(CompletionShells()));
  completion->footer("Example, in ~/.bashrc:\n  eval \"$(tandem completion bash)\"");
  completion->callback([=] { *action = [=] { return Print(CompletionScript(*shell, *app)); }; });
  app->add_subcommand("version", "Print the version")->callback([=] {
    *action = [] { return Print(VersionText() + "\n"); };
  });
  // For completion and for `./dev install`.
  auto what = std::make_shared<std::string>();
  CLI::App* names = app->add_subcommand("names", "Print the names of what runs")->group("");
  names->add_option("what", *what, "Of what")
      ->required()
      ->check(usage::IsOneOf({"sessions", "gpus"}));
  names->callback([=] { *action = [=] { return PrintNames(*what); }; });
  // For `tandem doctor`, which asks from processes of their own.
  CLI::App* probe = app->add_subcommand("probe", "Answer a question of doctor's")->group("");
  probe->add_option("what", *what, "Which")
      ->required()
      ->check(usage::IsOneOf({std::begin(kProbes), std::end(kProbes)}));
  probe->callback([=] { *action = [=] { return PrintProbe(*what); }; });
  app->add_subcommand("manual", "Print the manual page")->group("")->callback([=] {
    *action = [=] { return Print(usage::ManualPage(*app, 1, TANDEM_VERSION)); };
  });
  auto about = std::make_shared<std::string>();
  CLI::App* help = app->add_subcommand("help", "Explain a command");
  help->add_option("command", *about, "One of those that `tandem help` lists")
      ->type_name("COMMAND");
  help->footer("Examples:\n  tandem help\n  tandem help run");
  help->callback([=] { *action = [=] { return Print(HelpOf(*app, *about)); }; });
}

int Main(int argc, char** argv) {
  CLI::App app{"Share a GPU among programs that do not fit on it together.", "tandem"};
  std::function<int()> action = [&] { return Print(HelpOf(app, "")); };
  RunOptions run_options;
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", VersionText(), "Print the version");
  app.footer(
      "Examples:\n"
      "  tandem run -- python3 train.py     start a program that shares\n"
      "  tandem ps --watch                  see who shares, and what they hold\n"
      "`tandem help COMMAND` says more.");
  const CLI::App* run = AddRun(&app, &run_options, &action);
  AddShowCommands(&app, &action);
  AddOrders(&app, &action);
  AddPolicy(&app, &action);
  AddShare(&app, &action);
  AddLease(&app, &action);
  AddCdi(&app, &action);
  AddAttach(&app, &action);
  AddSoftGpu(&app, &action);
  AddReport(&app, &action);
  AddPlan(&app, &action);
  AddServe(&app, &action);
  AddDoctor(&app, &action);
  AddPythonCommands(&app);
  AddOwn(&app, &action);
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (IsPythonCommand(arguments)) return RunPythonCommand(arguments);
  run_options.command = CutProgram(*run, &arguments);
  if (const auto mistake = MistypedWord(app, arguments)) {
    return Fail(usage::kExitUsage, *mistake);
  }
  try {
    std::reverse(arguments.begin(), arguments.end());  // as this overload wants them
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    return usage::Explain(app, error);
  }
  MakeRuntimeDirAbsolute();
  return action();
}

}  // namespace
}  // namespace tandem::cli

int main(int argc, char** argv) {
  return tandem::cli::Main(argc, argv);
}
