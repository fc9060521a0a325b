#include "src/cli/trace.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "src/base/duration.h"
#include "src/base/json.h"
#include "src/cli/environment.h"
#include "src/cli/history_file.h"
#include "src/cli/print.h"
#include "src/cli/show_commands.h"
#include "src/history/state_dir.h"
#include "src/history/trace.h"
#include "src/usage/usage.h"

namespace tandem::cli {
namespace {

constexpr char kUsualOutput[] = "tandem-trace.json";
constexpr int kOlderFiles = 99;  // at most

struct TraceOptions {
  std::string last = "5m";
  std::string output = kUsualOutput;
  std::string events;  // empty: the daemon's
  std::optional<std::string> gpu;
};

bool AddFile(const std::string& path, history::Trace* trace) {
  std::ifstream file(path);
  if (!file) return false;
  for (std::string line; std::getline(file, line);) trace->Add(line);
  return true;
}

// From the oldest file to the one that is written to.
Status AddAll(const std::string& events, history::Trace* trace) {
  int oldest = 0;
  while (oldest < kOlderFiles &&
         access((events + "." + std::to_string(oldest + 1)).c_str(), F_OK) == 0) {
    ++oldest;
  }
  for (int age = oldest; age > 0; --age) AddFile(events + "." + std::to_string(age), trace);
  if (AddFile(events, trace)) return {};
  const int reason = errno;
  const std::string what = "cannot read the event log " + events + ": " + std::strerror(reason);
  return Error{ErrorCode::kFailed, reason == ENOENT
                                       ? what + "; a daemon writes it once a program has used a GPU"
                                       : what};
}

Result<std::string> WriteTrace(const TraceOptions& options) {
  ASSIGN_OR_RETURN(const Duration span, ParseDuration(options.last));
  if (span <= Duration()) return Error{ErrorCode::kInvalid, "--last must be more than nothing"};
  std::string events = options.events;
  if (events.empty()) {
    ASSIGN_OR_RETURN(events, HistoryFile("events_file", history::EventsFile(), "--events"));
  }
  history::Trace trace;
  TRY(AddAll(events, &trace));
  const std::string text = JsonText(trace.Finish(span.ns));
  if (options.output == "-") return text + "\n";
  std::ofstream file(options.output, std::ios::trunc);
  file << text << "\n";
  if (!file.flush()) {
    return Error{ErrorCode::kFailed,
                 "cannot write " + options.output + ": " + std::strerror(errno)};
  }
  return fmt::format("{}: the last {} of {}; open it at ui.perfetto.dev or in chrome://tracing\n",
                     options.output, options.last, events);
}

int RunTrace(const TraceOptions& options) {
  if (const auto gpu = ChooseGpu(options.gpu); !gpu.ok()) return Fail(gpu.error());
  const Result<std::string> said = WriteTrace(options);
  if (!said.ok()) return Fail(said.error());
  return Print(*said);
}

}  // namespace

void AddTrace(CLI::App* app, std::function<int()>* action) {
  auto options = std::make_shared<TraceOptions>();
  CLI::App* command =
      app->add_subcommand("trace", "Write what the GPUs did as a trace for Perfetto");
  command->add_option("--last", options->last, "How far back")
      ->type_name("TIME")
      ->check(usage::IsTime())
      ->capture_default_str();
  command->add_option("-o,--output", options->output, "The trace's file; - is standard output")
      ->type_name("FILE")
      ->capture_default_str();
  command->add_option("--events", options->events, "An event log; by default the daemon's")
      ->type_name("FILE");
  AddGpu(command, &options->gpu);
  command->footer(
      "For each GPU a track of its hand-overs and of its memory; for each session its waits, its\n"
      "leases, its work, and what was swapped. docs/events.md describes the event log.\n"
      "\n"
      "Examples:\n"
      "  tandem trace\n"
      "  tandem trace --last 30s -o - | jq '.traceEvents | length'\n"
      "  tandem trace --events events.jsonl --last 24h");
  command->callback([=] { *action = [=] { return RunTrace(*options); }; });
}

}  // namespace tandem::cli
