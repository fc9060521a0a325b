#include "src/daemon/options.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "src/base/duration.h"
#include "src/base/host_memory.h"
#include "src/base/text.h"
#include "src/core/policy.h"
#include "src/daemon/spill_directory.h"
#include "src/usage/manual.h"
#include "src/usage/usage.h"

namespace tandem::daemon {
namespace {

constexpr char kExamples[] =
    "Examples:\n"
    "  tandemd                                       in this terminal; end it with Ctrl-C\n"
    "  tandemd --daemonize --log /tmp/tandemd.log    in the background\n"
    "  TANDEM_GPU=soft tandemd                       on the software GPU\n"
    "  tandemd --policy fcfs                         busy holders are not interrupted\n"
    "  tandemd --everybody                           as root: for all users of this machine\n"
    "  tandemd --host-memory 64G --spill /scratch:500G\n"
    "                                                on the disk what 64 GiB do not hold\n"
    "  tandem status                                 what it is doing";

// Of a turn under chaos: long enough for a program that got the card to submit something.
constexpr Duration kChaosTurn = Milliseconds(1);
// As good as for ever, and can be added to any instant there will be.
constexpr Duration kLongestFixedWait = Seconds(int64_t{1} << 32);
constexpr Bytes kLeastEvents = MiB(1);

// Options for tests and measurements. Each has a variable of the environment as well, for the
// daemons that `tandem run` starts.
void AddTestOptions(CLI::App* app, Options* options) {
  constexpr char kGroup[] = "For tests and measurements";
  const auto fix_turn = [options](const std::string& text) {
    const Result<Duration> turn = ParseDuration(text);
    if (!turn.ok()) throw CLI::ValidationError("--turn", turn.error().message);
    options->turns.Fix(*turn);
  };
  app->add_option_function<std::string>("--turn", fix_turn,
                                        "let turns last this long, such as 5s or 100ms, whatever a "
                                        "switch costs; 0: a busy program "
                                        "gives way at once")
      ->envname("TANDEM_TURN")
      ->group(kGroup);
  app->add_flag("--alone", options->turns.alone,
                "take turns also where all programs would fit on the card together")
      ->envname("TANDEM_ALONE")
      ->group(kGroup);
  app->add_option("--time-scale", options->turns.time_scale,
                  "divide the seconds that policies count by this number")
      ->check(CLI::Range(int64_t{1}, int64_t{1000}))
      ->envname("TANDEM_TIME_SCALE")
      ->group(kGroup);
  app->add_flag("--chaos", options->chaos,
                "take the card, and some memory, from programs every few milliseconds, at random")
      ->envname("TANDEM_CHAOS")
      ->group(kGroup);
  app->add_option("--seed", options->seed, "the random numbers of --chaos, as the log named them")
      ->envname("TANDEM_SEED")
      ->group(kGroup);
}

void AddPolicy(CLI::App* app, Options* options) {
  std::vector<std::string> names;
  std::string text = "scheduling policy, where sessions do not fit together:";
  for (const core::PolicyName& policy : core::PolicyNames()) {
    names.emplace_back(policy.name);
    text += fmt::format("\n{}: {}", policy.name, policy.summary);
  }
  app->add_option("--policy", options->policy, text)
      ->check(usage::IsOneOf(std::move(names), core::IsPolicyName))
      ->type_name("NAME")
      ->capture_default_str()
      ->envname("TANDEM_POLICY");
}

Result<Bytes> ParseHostMemory(const std::string& text) {
  ASSIGN_OR_RETURN(const Bytes bytes, ParseSize(text));
  const Bytes total = TotalHostMemory();
  if (bytes <= total) return bytes;
  return Error{ErrorCode::kInvalid,
               fmt::format("{} is more than this machine has: {} of RAM and swap space",
                           FormatBytes(bytes), FormatBytes(total))};
}

void AddHostMemory(CLI::App* app, Options* options) {
  const auto set = [options](const std::string& text) {
    const Result<Bytes> bytes = ParseHostMemory(text);
    if (!bytes.ok()) throw CLI::ValidationError("--host-memory", bytes.error().message);
    options->host_memory = *bytes;
  };
  app->add_option_function<std::string>("--host-memory", set,
                                        "memory of this machine for what does not fit on the "
                                        "cards, e.g. 64G; by default what is available now, less "
                                        "a tenth")
      ->type_name("SIZE")
      ->envname("TANDEM_HOST_MEMORY");
}

void AddSpill(CLI::App* app, Options* options) {
  const auto set = [options](const std::string& text) {
    Result<service::Spill> spill = ParseSpill(text);
    if (spill.ok()) spill = FitsOnDisk(*std::move(spill));
    if (!spill.ok()) throw CLI::ValidationError("--spill", spill.error().message);
    options->spill = *std::move(spill);
  };
  app->add_option_function<std::string>("--spill", set,
                                        "use files in a directory, up to a size, for what that "
                                        "memory has no room for, e.g. /var/tmp:64G")
      ->type_name("DIR:SIZE")
      ->envname("TANDEM_SPILL");
}

void AddFixedWait(CLI::App* app, Options* options) {
  const auto set = [options](const std::string& text) {
    const Result<Duration> wait = ParseDuration(text);
    if (!wait.ok()) throw CLI::ValidationError("--fixed-wait", wait.error().message);
    options->fixed_wait = std::min(*wait, kLongestFixedWait);
  };
  app->add_option_function<std::string>("--fixed-wait", set,
                                        "a program that needs room for a context or other memory "
                                        "that cannot be swapped waits this long while others need "
                                        "it, then its memory is out")
      ->type_name("DURATION")
      ->default_str("60s")
      ->envname("TANDEM_FIXED_WAIT");
}

void AddLongestBlock(CLI::App* app, Options* options) {
  const auto set = [options](const std::string& text) {
    const Result<Duration> longest = ParseDuration(text);
    if (!longest.ok()) throw CLI::ValidationError("--longest-block", longest.error().message);
    options->longest_block = *longest;
  };
  app->add_option_function<std::string>("--longest-block", set,
                                        "end a program that keeps others waiting for this long "
                                        "after it was asked to give up the card, e.g. 5m; 0s: "
                                        "never")
      ->type_name("DURATION")
      ->default_str("5m")
      ->envname("TANDEM_LONGEST_BLOCK");
}

void AddHistory(CLI::App* app, Options* options) {
  app->add_option("--events", options->events,
                  "write what happens to this file, a JSON object on each line; none: nowhere. By "
                  "default events.jsonl in $TANDEM_STATE_DIR, /var/lib/tandem or "
                  "~/.local/state/tandem")
      ->type_name("FILE")
      ->envname("TANDEM_EVENTS");
  app->add_option("--accounts", options->accounts,
                  "keep accounts of the GPUs' use in this database, for `tandem report`; none: "
                  "nowhere. By default accounts.db beside the event log")
      ->type_name("FILE")
      ->envname("TANDEM_ACCOUNTS");
  const auto set = [options](const std::string& text) {
    const Result<Bytes> bytes = ParseSize(text);
    if (!bytes.ok()) throw CLI::ValidationError("--events-size", bytes.error().message);
    if (*bytes < kLeastEvents) {
      throw CLI::ValidationError("--events-size", "at least 1M, e.g. 256M");
    }
    options->events_size = *bytes;
  };
  app->add_option_function<std::string>(
         "--events-size", set, "keep this much of them, in four files; the oldest goes first")
      ->type_name("SIZE")
      ->default_str("256M")
      ->envname("TANDEM_EVENTS_SIZE");
}

}  // namespace

ParsedOptions ParseOptions(int argc, const char* const* argv) {
  ParsedOptions parsed;
  Options& options = parsed.options;
  CLI::App app{
      "tandemd decides which programs may use this machine's GPUs, and when.\n"
      "`tandem run` starts one where none runs; there is nothing to configure.",
      "tandemd"};
  app.set_version_flag("--version", "tandemd " TANDEM_VERSION);
  double idle_seconds = 0;
  app.add_flag("--daemonize", options.daemonize,
               "go to the background once programs can connect; log to --log");
  app.add_flag("--everybody", options.everybody, "as root: serve the programs of all users");
  app.add_flag("--leases-only", options.leases_only,
               "serve only jobs of a cluster engine, which have leases, and root")
      ->envname("TANDEM_LEASES_ONLY");
  app.add_option("--cdi", options.cdi,
                 "write the specification of the GPUs as devices of containers to this file, such "
                 "as /etc/cdi/tandem.json")
      ->type_name("FILE")
      ->envname("TANDEM_CDI");
  app.add_option("--reserve-contexts", options.reserved_contexts,
                 "keep room on each card for this many contexts")
      ->check(CLI::Range(1u, 64u))
      ->capture_default_str();
  AddPolicy(&app, &options);
  AddHostMemory(&app, &options);
  AddSpill(&app, &options);
  AddFixedWait(&app, &options);
  AddLongestBlock(&app, &options);
  AddHistory(&app, &options);
  app.add_option("--log", options.log_file,
                 "write the log to this file, at most 1 MiB and as much of an older one");
  auto* idle = app.add_option("--exit-when-idle", idle_seconds,
                              "end after this many seconds without a program or a run")
                   ->check(CLI::Range(0.0, 1e6));
  app.add_option("--devices-json", options.devices_json,
                 "take the GPUs from this file, as --probe prints them (for tests)");
  app.add_flag("--probe", options.probe, "print what the GPUs are, as JSON, and end");
  app.add_flag("--meter", options.meter, "answer a daemon that measures (meter.h)")->group("");
  app.add_flag("--spill-keeper", options.spill_keeper, "make a daemon's files (spill_keeper.h)")
      ->group("");
  bool manual = false;
  app.add_flag("--manual", manual, "print the manual page, and end")->group("");
  AddTestOptions(&app, &options);
  app.footer(kExamples);
  if (const auto mistake = usage::UnknownOption(app, "tandemd", {argv + 1, argv + argc})) {
    std::fprintf(stderr, "%s\n", EscapeText(*mistake).c_str());
    parsed.exit_status = usage::kExitUsage;
    return parsed;
  }
  try {
    app.parse(argc, argv);
    if (options.chaos && app.count("--turn") == 0) options.turns.Fix(kChaosTurn);
    if (manual) {
      std::printf("%s", usage::ManualPage(app, 8, TANDEM_VERSION).c_str());
      parsed.exit_status = 0;
    }
  } catch (const CLI::ParseError& error) {
    parsed.exit_status = usage::Explain(app, error);
  }
  if (idle->count() > 0) {
    options.exit_when_idle = Duration(static_cast<int64_t>(idle_seconds * 1e9));
  }
  return parsed;
}

}  // namespace tandem::daemon
