// `tandem ps`: the sessions, and the runs that have none, as a table.
#include "src/cli/fields.h"
#include "src/cli/listing.h"
#include "src/cli/session_words.h"
#include "src/cli/table.h"

namespace tandem::cli {
namespace {

using Json = nlohmann::json;

std::vector<Cell> RowOf(const Json& session, const std::vector<Json>& sessions) {
  const std::string state = Text(Member(session, "state"));
  const Json& gpu = Member(session, "gpu");
  return {{Text(Member(session, "id"))},
          {gpu.is_null() ? "-" : "gpu" + Text(gpu)},
          {UserName(Member(session, "uid"))},
          {CutText(Text(Member(session, "name")), kMostOfName)},
          {CutText(Text(Member(session, "program")), kMostOfName)},
          {Text(Member(session, "pid"))},
          {Text(Member(session, "class"))},
          {state, ColourOfState(session)},
          {Size(Member(session, "resident_bytes"))},
          {Size(Member(session, "swapped_bytes"))},
          {Size(Member(session, "allocated_bytes"))},
          {Size(Member(session, "fixed_bytes"))},
          {Size(Member(session, "host_share_bytes"))},
          {Size(Member(session, "limit_bytes"))},
          {SecondsText(Member(session, "waited_s"))},
          {SecondsText(Member(session, "elapsed_s"))},
          {WhyText(session, sessions)}};
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
  for (const Json& session : sessions) table.Add(RowOf(session, sessions));
  for (const Json& run : runs) table.Add(RowOf(run, sessions));
  return table.Show(screen);
}

}  // namespace tandem::cli
