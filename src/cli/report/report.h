// `tandem report`: the use of the GPUs, from the accounts that daemons keep.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/cli/table.h"
#include "src/history/accounts_reader.h"

namespace tandem::cli {

struct ReportOptions {
  std::string since = "7d";
  std::string until = "now";
  std::string by = "user";
  std::string user;  // only this one's sessions; empty: all
  std::string file;  // the accounts; empty: the daemon's
  bool me = false;
  bool csv = false;
  bool json = false;
  std::optional<std::string> gpu;  // the kind, as for other commands
};

struct Report {
  history::AccountsQuery query;
  std::string by;
  history::AccountsAnswer answer;
};

// REQUIRES: ChooseGpu. kInvalid where the options do not fit together; else what the accounts'
// reader says, and what to do about it.
Result<Report> MakeReport(const ReportOptions& options);

// A line for each row, and the sum. Nothing that other people chose reaches the terminal unescaped.
std::string ReportText(const Report& report, const Screen& screen);
// RFC 4180, but for lines that end with "\n". No spreadsheet takes a name for a formula.
std::string ReportCsv(const Report& report);
// One line of ASCII, without its end.
std::string ReportJson(const Report& report);

void AddReport(CLI::App* app, std::function<int()>* action);

}  // namespace tandem::cli
