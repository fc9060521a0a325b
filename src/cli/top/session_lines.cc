// The sessions: one line each, sorted and by user, and all about one of them.
#include <fmt/core.h>

#include <algorithm>
#include <ctime>

#include "src/base/bytes.h"
#include "src/cli/fields.h"
#include "src/cli/session_words.h"
#include "src/cli/top/frame.h"

namespace tandem::cli::top {
namespace {

// Seconds since 1970 of "2026-11-25T07:00:00.123456Z"; nothing where it is no such time.
std::optional<double> UnixTime(const std::string& text) {
  tm parts{};
  const char* const rest = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (rest == nullptr) return std::nullopt;
  return static_cast<double>(timegm(&parts)) + (*rest == '.' ? std::strtod(rest, nullptr) : 0);
}

std::string ForHowLong(const Json& session, const Canvas& canvas) {
  const std::optional<double> since = UnixTime(RawText(session, "since"));
  return since.has_value() ? SecondsText(std::max(canvas.unix_s - *since, 0.0)) : "-";
}

const Json* GpuOf(const Model& model, const Row& row) {
  for (const Json& gpu : List(model.status(), "gpus")) {
    if (Member(gpu, "index") == Member(*row.json, "gpu")) return &gpu;
  }
  return nullptr;
}

bool IsFair(const Model& model, const Row& row) {
  const Json* const gpu = GpuOf(model, row);
  return gpu != nullptr && RawText(*gpu, "policy") == "fair";
}

// Of the last minute, and what was asked for: within the user's, where that was set.
std::string SharesOf(const Model& model, const Row& row) {
  if (!IsFair(model, row)) return "-";
  const std::string own = Text(Member(*row.json, "share"));
  const std::string user = Text(Member(*row.json, "user_share"));
  return fmt::format("{} / {}", Percent(row.rates.held), user == "1" ? own : own + " of " + user);
}

std::vector<Cell> SessionCells(const Model& model, const Row& row, const std::string& user,
                               const Canvas& canvas) {
  const Json& session = *row.json;
  const Json& gpu = Member(session, "gpu");
  return {{Text(Member(session, "id"))},
          {gpu.is_null() ? "-" : "gpu" + Text(gpu)},
          {user},
          {CutText(Text(Member(session, "name")), kMostOfName)},
          {Text(Member(session, "class"))},
          {Text(Member(session, "state")), ColourOfState(session)},
          {ForHowLong(session, canvas)},
          {Percent(row.rates.active)},
          {SharesOf(model, row)},
          {Size(Member(session, "resident_bytes"))},
          {Size(Member(session, "swapped_bytes"))},
          {PerMinute(row.rates.handovers_per_minute)},
          {WhyText(session, model.sessions())}};
}

// What the sessions of a user have together.
std::vector<Cell> UserCells(const std::vector<Row>& rows, size_t begin, size_t end) {
  Bytes resident, swapped;
  std::optional<double> active, handovers;
  for (size_t i = begin; i < end; ++i) {
    const Row& row = rows[i];
    resident += RawBytes(*row.json, "resident_bytes");
    swapped += RawBytes(*row.json, "swapped_bytes");
    if (row.rates.active.has_value()) active = active.value_or(0) + *row.rates.active;
    if (row.rates.handovers_per_minute.has_value()) {
      handovers = handovers.value_or(0) + *row.rates.handovers_per_minute;
    }
  }
  const size_t count = end - begin;
  return {{""},
          {""},
          {rows[begin].user, "1"},
          {fmt::format("{} session{}", count, count == 1 ? "" : "s"), "1"},
          {""},
          {""},
          {""},
          {Percent(active)},
          {""},
          {FormatBytes(resident)},
          {FormatBytes(swapped)},
          {PerMinute(handovers)},
          {""}};
}

Table EmptyTable(const Model& model, const std::vector<Row>& rows) {
  const bool fair =
      std::any_of(rows.begin(), rows.end(), [&](const Row& row) { return IsFair(model, row); });
  const bool many = List(model.status(), "gpus").size() > 1;
  // A column without `keep` stays; one that says nothing here is the first to go.
  return Table({{"ID"},
                {"GPU", many ? 9 : 1},
                {"USER", 8},
                {"NAME"},
                {"CLASS", 2},
                {"STATE"},
                {"SINCE", 5},
                {"GPU%", 12},
                {"SHARE", fair ? 11 : 1},
                {"RESIDENT", 10},
                {"SWAPPED", 6},
                {"H/MIN", 4},
                {"WHY", 7, true}});
}

// Keeps at most `rows` lines, and the selected one among them.
void Scroll(Frame* lines, size_t rows) {
  if (rows == 0 || lines->size() <= rows) return;
  const auto selected =
      std::find_if(lines->begin(), lines->end(), [](const Line& line) { return line.selected; });
  const auto at = static_cast<size_t>(selected - lines->begin());
  const size_t last_begin = lines->size() - rows;
  const size_t begin = std::min(at < rows ? 0 : at - rows + 1, last_begin);
  lines->erase(lines->begin(), lines->begin() + static_cast<std::ptrdiff_t>(begin));
  lines->resize(rows);
}

}  // namespace

Frame DrawSessions(const Model& model, const View& view, const Canvas& canvas) {
  const std::vector<Row> rows = Choose(model, view);
  if (rows.empty()) {
    return {{{{view.user.empty() ? "No program shares a GPU now."
                                 : Text(Json(view.user)) + " shares no GPU now."}}}};
  }
  const Row* const selected = Selected(rows, view);
  Table table = EmptyTable(model, rows);
  std::vector<bool> marks;
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool first = i == 0 || rows[i].user != rows[i - 1].user;
    if (view.tree && first) {
      const auto end = std::find_if(rows.begin() + static_cast<std::ptrdiff_t>(i), rows.end(),
                                    [&](const Row& row) { return row.user != rows[i].user; });
      table.Add(UserCells(rows, i, static_cast<size_t>(end - rows.begin())));
      marks.push_back(false);
    }
    const bool last = i + 1 == rows.size() || rows[i + 1].user != rows[i].user;
    const char* const branch = canvas.unicode ? (last ? " └─" : " ├─") : (last ? " `-" : " |-");
    table.Add(SessionCells(model, rows[i], view.tree ? branch : rows[i].user, canvas));
    marks.push_back(canvas.rows != 0 && &rows[i] == selected);
  }
  const auto laid = table.Lay({canvas.columns, false});
  Line titles{laid.front()};
  for (Cell& cell : titles.cells) cell.colour = "1";
  Frame lines;
  for (size_t i = 1; i < laid.size(); ++i) lines.push_back({laid[i], marks[i - 1]});
  Scroll(&lines, canvas.rows == 0 ? 0 : std::max<size_t>(canvas.rows, 2) - 1);
  lines.insert(lines.begin(), std::move(titles));
  return lines;
}

Frame DrawDetails(const Model& model, const View& view, const Canvas& canvas) {
  const std::vector<Row> rows = Choose(model, view);
  const Row* const row = Selected(rows, view);
  if (row == nullptr) return DrawSessions(model, view, canvas);
  const Json& session = *row->json;
  const auto field = [&](const char* key) { return Text(Member(session, key)); };
  const auto size = [&](const char* key) { return Size(Member(session, key)); };
  const auto seconds = [&](const char* key) { return SecondsText(Member(session, key)); };
  Frame lines;
  const auto add = [&](const char* label, const std::string& text, const char* colour = "") {
    lines.push_back({{{fmt::format("{:<13}", label), "2"}, {text, colour}}});
  };
  lines.push_back({{{"session " + field("id") + "  " + field("name"), "1"}}});
  add("program", fmt::format("{}, process {}, user {}", field("program"), field("pid"), row->user));
  add("class", field("class"));
  add("state", fmt::format("{}, for {}", field("state_text"), ForHowLong(session, canvas)),
      ColourOfState(session));
  add("why", WhyText(session, model.sessions()));
  add("memory",
      fmt::format("{} allocated: {} on the GPU, {} in host memory or files",
                  size("allocated_bytes"), size("resident_bytes"), size("swapped_bytes")));
  add("fixed", fmt::format("{} that cannot be swapped, and contexts: {}", size("fixed_bytes"),
                           field("contexts")));
  add("limit",
      fmt::format("{}; host memory promised: {}", size("limit_bytes"), size("host_share_bytes")));
  add("moved", fmt::format("{} to the host, {} back", size("out_bytes"), size("in_bytes")));
  add("time", fmt::format("{} since it began: active {}, with the lease {}, waited {}",
                          seconds("elapsed_s"), seconds("active_s"), seconds("held_s"),
                          seconds("waited_s")));
  add("now", fmt::format("{} active; held {} of the last minute", Percent(row->rates.active),
                         Percent(row->rates.held)));
  add("share",
      fmt::format("{} of its user's; its user's: {}", field("share"), field("user_share")) +
          (IsFair(model, *row) ? "" : " (only under policy fair)"));
  add("hand-overs", fmt::format("{} so far, {} a minute; {} leases", field("handovers"),
                                PerMinute(row->rates.handovers_per_minute), field("leases")));
  return lines;
}

}  // namespace tandem::cli::top
