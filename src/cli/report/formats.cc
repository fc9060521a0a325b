// What `tandem report` prints: a table, CSV or JSON.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "src/base/bytes.h"
#include "src/base/json.h"
#include "src/base/text.h"
#include "src/cli/fields.h"
#include "src/cli/report/keys.h"
#include "src/cli/report/report.h"
#include "src/history/local_time.h"

namespace tandem::cli {
namespace {

using Json = nlohmann::json;
using history::AccountsKey;
using history::AccountsRow;
using history::Amounts;

double InSeconds(uint64_t ns) {
  return static_cast<double>(ns) / 1e9;
}

// "2026-11-25 07:00", of a time as the accounts have it.
std::string ShortTime(std::string time) {
  time[10] = ' ';
  return time.substr(0, 16);
}

std::string ShortTime(int64_t unix_ns) {
  return ShortTime(history::LocalTime(unix_ns / history::kNsInSecond));
}

std::string KeyText(const Report& report, AccountsKey key, const std::string& value) {
  if (value.empty()) return "-";
  if (key == AccountsKey::kDay) return value.substr(0, 10);
  if (key == AccountsKey::kHour) return ShortTime(value);
  if (key != AccountsKey::kGpu) return CutText(EscapeText(value), kMostOfName);
  constexpr size_t kEnough = 12;  // of "GPU-" and 32 digits
  for (size_t i = 0; i < report.answer.gpus.size(); ++i) {
    if (report.answer.gpus[i] != value) continue;
    return fmt::format("gpu{} {}", report.answer.gpu_indices[i],
                       CutText(EscapeText(value), kEnough));
  }
  return EscapeText(value);
}

std::string HoursText(uint64_t ns) {
  return SecondsText(Json(InSeconds(ns)));
}

std::string MemoryText(double byte_s) {
  const double gib_h = byte_s / static_cast<double>(GiB(1).count) / 3600;
  if (gib_h != 0 && gib_h < 0.1) return fmt::format("{:.3f} GiB h", gib_h);
  return fmt::format("{:.1f} GiB h", gib_h);
}

std::vector<Cell> RowOf(std::vector<Cell> cells, const AccountsRow& row) {
  const Amounts& amounts = row.amounts;
  for (std::string& text : std::vector<std::string>{
           HoursText(amounts.held_ns), fmt::format("{:.1f}%", 100 * row.share),
           HoursText(amounts.active_ns), HoursText(amounts.waited_ns), std::to_string(row.sessions),
           MemoryText(amounts.allocated_byte_s), MemoryText(amounts.resident_byte_s),
           MemoryText(amounts.swapped_byte_s), std::to_string(amounts.handovers),
           FormatBytes(Bytes(amounts.out_bytes)), FormatBytes(Bytes(amounts.in_bytes))}) {
    cells.push_back({std::move(text)});
  }
  return cells;
}

std::string Heading(const Report& report) {
  const history::AccountsQuery& query = report.query;
  const size_t gpus = report.answer.gpus.size();
  std::string text = fmt::format("{} to {}", ShortTime(query.since_ns), ShortTime(query.until_ns));
  if (gpus != 0) text += fmt::format(", {} GPU{}", gpus, gpus == 1 ? "" : "s");
  if (report.answer.begin_ns > query.since_ns && report.answer.begin_ns < query.until_ns) {
    text += fmt::format("; the accounts begin {}", ShortTime(report.answer.begin_ns));
  }
  return text;
}

// In quotes. A spreadsheet takes a text that begins with one of these for a formula.
std::string CsvText(const std::string& value) {
  std::string text;
  for (const char* first : {"=", "+", "-", "@", "＝", "＋", "－", "＠"}) {
    if (value.starts_with(first)) text = "'";
  }
  for (const char c : EscapeText(value)) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return '"' + text + '"';
}

Json AmountsJson(const AccountsRow& row) {
  const Amounts& amounts = row.amounts;
  return {{"held_s", InSeconds(amounts.held_ns)},
          {"active_s", InSeconds(amounts.active_ns)},
          {"waited_s", InSeconds(amounts.waited_ns)},
          {"allocated_byte_s", amounts.allocated_byte_s},
          {"resident_byte_s", amounts.resident_byte_s},
          {"swapped_byte_s", amounts.swapped_byte_s},
          {"handovers", amounts.handovers},
          {"out_bytes", amounts.out_bytes},
          {"in_bytes", amounts.in_bytes},
          {"sessions", row.sessions},
          {"share", row.share}};
}

}  // namespace

std::string ReportText(const Report& report, const Screen& screen) {
  const auto& rows = report.answer.rows;
  if (rows.empty()) {
    const std::string& user = report.query.user;
    const std::string whose = report.query.uid.has_value() ? " of yours"
                              : user.empty()               ? ""
                                                           : " of " + EscapeText(user);
    return fmt::format("No session{} used a GPU from {}.\n", whose, Heading(report));
  }
  std::vector<Column> columns;
  for (const AccountsKey key : report.query.by) {
    std::string title = NameOf(key);
    for (char& c : title) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    columns.push_back({title});
  }
  columns.insert(columns.end(), {{"HELD"},
                                 {"SHARE", 11},
                                 {"ACTIVE", 9},
                                 {"WAITED", 10},
                                 {"SESSIONS", 8},
                                 {"MEMORY", 7},
                                 {"RESIDENT", 4},
                                 {"SWAPPED", 5},
                                 {"HAND-OVERS", 6},
                                 {"OUT", 2},
                                 {"IN", 1}});
  Table table(std::move(columns));
  for (const AccountsRow& row : rows) {
    std::vector<Cell> cells;
    for (size_t i = 0; i < row.keys.size(); ++i) {
      cells.push_back({KeyText(report, report.query.by[i], row.keys[i])});
    }
    table.Add(RowOf(std::move(cells), row));
  }
  std::vector<Cell> sum(report.query.by.size());
  sum[0].text = "in all";
  table.Add(RowOf(std::move(sum), report.answer.sum));
  return Heading(report) + "\n\n" + table.Show(screen);
}

std::string ReportCsv(const Report& report) {
  std::string text;
  for (const AccountsKey key : report.query.by) text += std::string(NameOf(key)) + ",";
  text +=
      "held_s,active_s,waited_s,allocated_byte_s,resident_byte_s,swapped_byte_s,handovers,"
      "out_bytes,in_bytes,sessions,share\n";
  for (const AccountsRow& row : report.answer.rows) {
    const Amounts& amounts = row.amounts;
    for (const std::string& key : row.keys) text += CsvText(key) + ",";
    text += fmt::format("{:.6f},{:.6f},{:.6f},{:.0f},{:.0f},{:.0f},{},{},{},{},{:.6f}\n",
                        InSeconds(amounts.held_ns), InSeconds(amounts.active_ns),
                        InSeconds(amounts.waited_ns), amounts.allocated_byte_s,
                        amounts.resident_byte_s, amounts.swapped_byte_s, amounts.handovers,
                        amounts.out_bytes, amounts.in_bytes, row.sessions, row.share);
  }
  return text;
}

std::string ReportJson(const Report& report) {
  Json json = {{"format", 1},
               {"since", history::UtcTime(report.query.since_ns)},
               {"until", history::UtcTime(report.query.until_ns)},
               {"by", report.by},
               {"gpus", report.answer.gpus},
               {"rows", Json::array()},
               {"sum", AmountsJson(report.answer.sum)}};
  for (const AccountsRow& row : report.answer.rows) {
    Json& entry = json["rows"].emplace_back(AmountsJson(row));
    for (size_t i = 0; i < row.keys.size(); ++i) {
      entry[NameOf(report.query.by[i])] = row.keys[i].empty() ? Json() : Json(row.keys[i]);
    }
  }
  return AsciiJson(json);
}

}  // namespace tandem::cli
