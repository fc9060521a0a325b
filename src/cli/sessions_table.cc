// `tandem ps`: the sessions, and the runs that have none, as a table.
#include <fmt/core.h>

#include "src/cli/fields.h"
#include "src/cli/listing.h"
#include "src/cli/table.h"

namespace tandem::cli {
namespace {

using Json = nlohmann::json;

const char* ColourOf(const Json& session) {
  const std::string state = Text(Member(session, "state"));
  if (state == "running") return "32";
  if (state == "stuck" || Member(session, "blocks_since").is_string()) return "31";
  if (state == "suspended" || state == "suspending") return "35";
  if (state == "idle" || state == "unused") return "2";
  return "33";
}

// Why it does not run, where it does not.
std::string Why(const Json& session) {
  const Json& reason = Member(session, "reason");
  if (reason.is_string()) {
    const Json& expected = Member(session, "expected_wait_s");
    return Text(reason) + (expected.is_number() ? ", about " + SecondsText(expected) : "");
  }
  const std::string state = Text(Member(session, "state"));
  if (state == "suspended" || state == "suspending") {
    const Json& by = Member(session, "suspended_by_uid");
    return fmt::format("{}`tandem resume {}` continues it",
                       by.is_number() ? "by " + UserName(by) + "; " : "",
                       Text(Member(session, "name")));
  }
  if (state == "unused" || state == "stuck") return Text(Member(session, "state_text"));
  return "-";
}

std::vector<Cell> RowOf(const Json& session) {
  const std::string state = Text(Member(session, "state"));
  const Json& gpu = Member(session, "gpu");
  return {{Text(Member(session, "id"))},
          {gpu.is_null() ? "-" : "gpu" + Text(gpu)},
          {UserName(Member(session, "uid"))},
          {CutText(Text(Member(session, "name")), kMostOfName)},
          {CutText(Text(Member(session, "program")), kMostOfName)},
          {Text(Member(session, "pid"))},
          {Text(Member(session, "class"))},
          {state, ColourOf(session)},
          {Size(Member(session, "resident_bytes"))},
          {Size(Member(session, "swapped_bytes"))},
          {Size(Member(session, "allocated_bytes"))},
          {Size(Member(session, "fixed_bytes"))},
          {Size(Member(session, "host_share_bytes"))},
          {Size(Member(session, "limit_bytes"))},
          {SecondsText(Member(session, "waited_s"))},
          {SecondsText(Member(session, "elapsed_s"))},
          {Why(session)}};
}

}  // namespace

Result<std::string> SessionsTable(const std::string& json, const Screen& screen) {
  ASSIGN_OR_RETURN(const Json answer, Parse(json));
  const auto& sessions = List(answer, "sessions");
  const auto& runs = List(answer, "runs");
  if (sessions.empty() && runs.empty()) return std::string("No program shares a GPU now.\n");
  // Of what may be left out the most telling stays the longest.
  Table table({{"ID"},
               {"GPU", 7},
               {"USER", 6},
               {"NAME"},
               {"PROGRAM", 1},
               {"PID", 2},
               {"CLASS", 4},
               {"STATE"},
               {"RESIDENT", 10},
               {"SWAPPED", 9},
               {"ALLOCATED", 8},
               {"FIXED", 2},
               {"PROMISED", 1},
               {"LIMIT", 3},
               {"WAITED", 11},
               {"ELAPSED", 5},
               {"WHY", 12, true}});
  for (const Json& session : sessions) table.Add(RowOf(session));
  for (const Json& run : runs) table.Add(RowOf(run));
  return table.Show(screen);
}

}  // namespace tandem::cli
