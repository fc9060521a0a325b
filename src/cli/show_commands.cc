// What the commands print, and how often. Options are declared here.
#include "src/cli/show_commands.h"

#include <fmt/core.h>
#include <unistd.h>

#include <charconv>
#include <memory>
#include <string_view>

#include "src/cli/daemon.h"
#include "src/cli/environment.h"
#include "src/cli/listing.h"
#include "src/cli/print.h"
#include "src/cli/selection.h"
#include "src/cli/top/top.h"
#include "src/cli/trace.h"
#include "src/usage/usage.h"
#include "src/wire/runtime_dir.h"

namespace tandem::cli {
namespace {

constexpr const char* kClearScreen = "\x1b[H\x1b[2J";

struct ListOptions {
  bool json = false;
  bool watch = false;
  Selection selection;  // of `tandem ps`
  std::optional<std::string> gpu;
};

// One answer of the daemon and the ways to show it.
struct Listing {
  const char* query;
  const char* json_without_daemon;
  Result<std::string> (*table)(const std::string& json, const Screen& screen);
};
constexpr Listing kSessions = {"sessions", R"({"runs":[],"sessions":[]})", SessionsTable};
constexpr Listing kStatus = {"status", R"({"gpus":[],"pid":null})", StatusText};
constexpr Listing kHandovers = {"handovers", R"({"handovers":[]})", HandoversTable};

// "1" or "gpu1".
std::optional<int> GpuNumber(std::string_view text) {
  if (text.starts_with("gpu")) text.remove_prefix(3);
  int number = 0;
  const auto end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end && number >= 0 ? std::optional(number) : std::nullopt;
}

Result<std::string> Show(const Listing& listing, const ListOptions& options) {
  const Result<std::string> answer = Query(listing.query);
  const bool json = options.json;
  if (answer.ok()) {
    ASSIGN_OR_RETURN(const std::string selected, Select(*answer, options.selection));
    return json ? CompactJson(selected) : listing.table(selected, OwnScreen());
  }
  const ErrorCode code = answer.error().code;
  // No daemon is no error: nothing is shared, and that is the answer.
  if (code != ErrorCode::kNotFound && code != ErrorCode::kUnavailable) return answer;
  if (json) return std::string(listing.json_without_daemon);
  return fmt::format("No daemon runs at {}; {} starts one.\n", wire::SocketPath(),
                     wire::RootStartsTheDaemon() ? "root" : "`tandem run`");
}

int List(const Listing& listing, const ListOptions& options) {
  if (const auto gpu = ChooseGpu(options.gpu); !gpu.ok()) return Fail(gpu.error());
  const bool redraw = options.watch && !options.json && isatty(STDOUT_FILENO) != 0;
  for (;;) {
    const Result<std::string> text = Show(listing, options);
    if (!text.ok()) return Fail(text.error());
    const int status = Print((redraw ? kClearScreen : "") + *text + (options.json ? "\n" : ""));
    // The reader may be gone: then the watch ends.
    if (!options.watch || status != 0) return status;
    sleep(1);
  }
}

// Which sessions, and in what order.
void AddSelection(CLI::App* command, Selection* selection) {
  command->add_option("-u,--user", selection->user, "Only this user's")->type_name("USER");
  command
      ->add_option_function<std::string>(
          "--on", [selection](const std::string& text) { selection->card = *GpuNumber(text); },
          "Only those on this GPU, such as 1 or gpu1")
      ->type_name("GPU")
      ->check([](const std::string& text) {
        return GpuNumber(text).has_value() ? ""
                                           : "'" + text + "' is no GPU; write for example gpu1";
      });
  command->add_option("--sort", selection->sort, "By this; the largest numbers first")
      ->type_name("KEY")
      ->check(usage::IsOneOf(SortKeys()));
}

void AddListing(CLI::App* app, const Listing& listing, const char* name, const char* help,
                const char* footer, std::function<int()>* action) {
  auto options = std::make_shared<ListOptions>();
  CLI::App* command = app->add_subcommand(name, help);
  if (&listing == &kSessions) AddSelection(command, &options->selection);
  command->add_flag("--json", options->json, "One JSON object on one line");
  command->add_flag("--watch", options->watch, "Repeat every second until interrupted");
  AddGpu(command, &options->gpu);
  command->footer(footer);
  command->callback([=] { *action = [=] { return List(listing, *options); }; });
}

void AddTop(CLI::App* app, std::function<int()>* action) {
  auto options = std::make_shared<TopOptions>();
  CLI::App* command =
      app->add_subcommand("top", "Watch the GPUs and their sessions, and give orders");
  command->add_flag("--once", options->once, "Print one picture as text");
  command->add_flag("--json", options->json, "One JSON object on one line for each refresh");
  command->add_option("--interval", options->interval, "Time between two refreshes")
      ->type_name("TIME")
      ->check(usage::IsTime())
      ->capture_default_str();
  AddGpu(command, &options->gpu);
  command->footer(
      "For each GPU: how busy it is, whose memory it has, and who holds it. For each session:\n"
      "its state, since when and why, its part of the GPU, its memory and its hand-overs.\n"
      "Keys: q quits, h explains the others. z, r and l suspend, resume and limit the selected\n"
      "session after a `y`.\n"
      "Without a terminal, or with TERM=dumb, it prints one picture as text. NO_COLOR leaves\n"
      "colours out.\n"
      "\n"
      "Examples:\n"
      "  tandem top\n"
      "  tandem top --once\n"
      "  tandem top --json --interval 5s | jq '.gpus[] | .utilisation'");
  command->callback([=] { *action = [=] { return Top(*options); }; });
}

}  // namespace

void AddGpu(CLI::App* command, std::optional<std::string>* gpu) {
  command->add_option("--gpu", *gpu, "soft: the software GPU; cuda: the card")
      ->type_name("KIND")
      ->check(usage::IsOneOf({"soft", "cuda"}));
}

void AddShowCommands(CLI::App* app, std::function<int()>* action) {
  AddListing(app, kSessions, "ps", "List the sessions that share a GPU",
             "Without a daemon there are none: that is said, and the status is 0; --json then "
             "gives\n{\"runs\":[],\"sessions\":[]}.\n\n"
             "Examples:\n  tandem ps --watch\n"
             "  tandem ps --user anna --sort waited\n"
             "  tandem ps --on gpu1\n"
             "  tandem ps --json | jq '.sessions[] | .name, .resident_bytes'",
             action);
  AddListing(app, kStatus, "status", "Show each GPU with its holders and waiting sessions",
             "Without a daemon that is said, and the status is 0; --json then gives "
             "{\"gpus\":[],\"pid\":null}.\n\n"
             "Example:\n  tandem status --json | jq '.gpus[0].free_bytes'",
             action);
  AddListing(app, kHandovers, "handovers", "List the last hand-overs and what they cost",
             "Example:\n  tandem handovers --json", action);
  AddTop(app, action);
  AddTrace(app, action);
}

}  // namespace tandem::cli
