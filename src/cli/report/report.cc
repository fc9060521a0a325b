#include "src/cli/report/report.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "src/cli/environment.h"
#include "src/cli/history_file.h"
#include "src/cli/print.h"
#include "src/cli/report/keys.h"
#include "src/cli/report/when.h"
#include "src/cli/show_commands.h"
#include "src/history/local_time.h"
#include "src/history/state_dir.h"
#include "src/usage/usage.h"

namespace tandem::cli {
namespace {

using history::AccountsKey;

CLI::Validator IsWhen() {
  const auto check = [](std::string& text) {
    const Result<int64_t> when = ParseWhen(text, history::NowUnixNs());
    return when.ok() ? "" : when.error().message;
  };
  return {check, ""};
}

CLI::Validator AreKeys() {
  const auto check = [](std::string& text) {
    const auto keys = ParseKeys(text);
    return keys.ok() ? "" : keys.error().message;
  };
  return {check, "{" + KeyList(",") + "}"};
}

Error WhyNot(const std::string& path, bool own, Error error) {
  if (error.code == ErrorCode::kInvalid) error.code = ErrorCode::kFailed;  // not by the options
  if (error.code == ErrorCode::kNotFound && own) {
    error.message = "there are no accounts yet: " + path +
                    " does not exist. A daemon makes it when a program uses a GPU (`tandem run`); "
                    "--file reads another file";
  }
  if (error.code == ErrorCode::kRefused) error.message += "; its owner and root can read it";
  return error;
}

int ShowReport(const ReportOptions& options) {
  if (const auto gpu = ChooseGpu(options.gpu); !gpu.ok()) return Fail(gpu.error());
  const Result<Report> report = MakeReport(options);
  if (!report.ok()) return Fail(report.error());
  if (options.json) return Print(ReportJson(*report) + "\n");
  return Print(options.csv ? ReportCsv(*report) : ReportText(*report, OwnScreen()));
}

}  // namespace

Result<Report> MakeReport(const ReportOptions& options) {
  Report report;
  report.by = options.by;
  history::AccountsQuery& query = report.query;
  const int64_t now_ns = history::NowUnixNs();
  ASSIGN_OR_RETURN(query.since_ns, ParseWhen(options.since, now_ns));
  ASSIGN_OR_RETURN(query.until_ns, ParseWhen(options.until, now_ns));
  ASSIGN_OR_RETURN(query.by, ParseKeys(options.by));
  query.until_ns = std::min(query.until_ns, now_ns);
  if (query.since_ns >= query.until_ns) {
    return Error{ErrorCode::kInvalid,
                 fmt::format("--since {} is not before --until {}", options.since, options.until)};
  }
  if (options.me) query.uid = getuid();
  query.user = options.user;
  const bool own = options.file.empty();
  std::string path = options.file;
  if (own) {
    ASSIGN_OR_RETURN(path, HistoryFile("accounts_file", history::AccountsFile(), "--accounts"));
  }
  Result<history::AccountsAnswer> answer = history::ReadAccounts(path, query);
  if (!answer.ok()) return WhyNot(path, own, std::move(answer).error());
  report.answer = std::move(*answer);
  return report;
}

void AddReport(CLI::App* app, std::function<int()>* action) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* command = app->add_subcommand("report", "Show who used the GPUs, and how long");
  const auto add_time = [&](const char* name, std::string* value, const char* help) {
    command->add_option(name, *value, help)
        ->type_name("WHEN")
        ->check(IsWhen())
        ->capture_default_str();
  };
  add_time("--since", &options->since, "The report begins then");
  add_time("--until", &options->until, "It ends then, and now at the latest");
  command->add_option("--by", options->by, "A row for each; several with commas, as in day,user")
      ->type_name("KEY")
      ->check(AreKeys())
      ->capture_default_str();
  CLI::Option* me = command->add_flag("--me", options->me, "Only sessions of this user");
  command->add_option("--user", options->user, "Only sessions of the user NAME")
      ->type_name("NAME")
      ->excludes(me);
  CLI::Option* csv =
      command->add_flag("--csv", options->csv, "Comma-separated values, for spreadsheets");
  command->add_flag("--json", options->json, "One JSON object on one line")->excludes(csv);
  command->add_option("--file", options->file, "Read these accounts: a copy, or another machine's")
      ->type_name("FILE");
  AddGpu(command, &options->gpu);
  command->footer(
      "WHEN is an age (30m, 12h, 7d, 4w), the begin of a day (today, yesterday, monday), or a\n"
      "date with or without a time (2026-11-25, 2026-11-25T07:00+01:00).\n"
      "HELD is the time with the lease, ACTIVE of that the time in which work was in flight.\n"
      "WAITED is the time for which the program was held back. SHARE is the part of the time of\n"
      "the cards; sessions that fit on a card together hold it at the same time. MEMORY,\n"
      "RESIDENT and SWAPPED are memory times hours: 8 GiB for 2 hours are 16 GiB h.\n"
      "The daemon writes every few seconds. A daemon of one user keeps that user's accounts.\n"
      "\n"
      "Examples:\n"
      "  tandem report\n"
      "  tandem report --since monday --by day,user\n"
      "  tandem report --since 2026-11-01 --until 2026-12-01 --by project --csv > november.csv\n"
      "  tandem report --me --since 12h --by run\n"
      "  tandem report --json | jq '.rows[] | .user, .held_s / 3600'");
  command->callback([=] { *action = [=] { return ShowReport(*options); }; });
}

}  // namespace tandem::cli
