#include "src/serve/report_answer.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "src/base/user_name.h"
#include "src/cli/report/keys.h"
#include "src/serve/snapshot.h"

namespace tandem::serve {
namespace {

using history::AccountsKey;
using history::AccountsRow;

size_t PlaceOf(const std::vector<AccountsKey>& keys, AccountsKey key) {
  return static_cast<size_t>(std::find(keys.begin(), keys.end(), key) - keys.begin());
}

void Add(const AccountsRow& row, AccountsRow* sum) {
  sum->amounts += row.amounts;
  sum->sessions += row.sessions;  // each is one user's, and so in one row
  sum->share += row.share;
}

Result<cli::Report> Make(cli::ReportOptions options, const Records& records) {
  if (!records.viewer.has_value()) return cli::MakeReport(options);
  ASSIGN_OR_RETURN(const std::vector<AccountsKey> keys, cli::ParseKeys(options.by));
  const bool by_run = PlaceOf(keys, AccountsKey::kRun) != keys.size();
  const bool by_user = PlaceOf(keys, AccountsKey::kUser) != keys.size();
  const std::string asked = options.by;
  if (by_run && !by_user) options.by += ",user";
  ASSIGN_OR_RETURN(cli::Report report, cli::MakeReport(options));
  if (by_run) HideRuns(UserNameOf(*records.viewer), by_user, &report);
  report.by = asked;
  return report;
}

}  // namespace

void HideRuns(const std::string& own, bool keep_user, cli::Report* report) {
  const size_t run = PlaceOf(report->query.by, AccountsKey::kRun);
  const size_t user = PlaceOf(report->query.by, AccountsKey::kUser);
  std::vector<AccountsRow> rows;
  std::map<std::vector<std::string>, size_t> places;
  for (AccountsRow row : report->answer.rows) {
    if (row.keys[user] != own) row.keys[run] = kHidden;
    if (!keep_user) row.keys.erase(row.keys.begin() + static_cast<ptrdiff_t>(user));
    const auto [place, is_new] = places.emplace(row.keys, rows.size());
    if (is_new) {
      rows.push_back(std::move(row));
    } else {
      Add(row, &rows[place->second]);
    }
  }
  report->answer.rows = std::move(rows);
  if (!keep_user) report->query.by.erase(report->query.by.begin() + static_cast<ptrdiff_t>(user));
}

Answer ReportAnswer(const Parameters& parameters, const Records& records) {
  const auto query = Query::Parse(parameters, {"since", "until", "by", "user", "format"});
  if (!query.ok()) return ErrorAnswer(query.error());
  cli::ReportOptions options;
  std::string format = "json";
  query->Read("since", &options.since);
  query->Read("until", &options.until);
  query->Read("by", &options.by);
  query->Read("user", &options.user);
  query->Read("format", &format);
  if (format != "json" && format != "csv") {
    return ErrorAnswer(400, "format must be json or csv");
  }
  if (records.accounts_file.empty()) {
    return ErrorAnswer(404, "the daemon keeps no accounts; start it without --accounts none");
  }
  options.file = records.accounts_file;
  const Result<cli::Report> report = Make(options, records);
  if (!report.ok() && report.error().code == ErrorCode::kNotFound) {
    return ErrorAnswer(404, "there are no accounts yet: " + options.file +
                                " does not exist. A daemon makes it when a program uses a GPU");
  }
  if (!report.ok()) return ErrorAnswer(report.error());
  if (format == "csv") {
    return {200, "text/csv; charset=utf-8", cli::ReportCsv(*report), "tandem-report.csv", false};
  }
  return {200, "application/json", cli::ReportJson(*report), "", false};
}

}  // namespace tandem::serve
