#include "src/cli/session_words.h"

#include <fmt/core.h>

#include <algorithm>

#include "src/cli/fields.h"
#include "src/cli/table.h"

namespace tandem::cli {

using Json = nlohmann::json;

const char* ColourOfState(const Json& session) {
  const std::string state = Text(Member(session, "state"));
  if (state == "running") return "32";
  if (state == "stuck" || Member(session, "blocks_since").is_string()) return "31";
  if (state == "suspended" || state == "suspending") return "35";
  if (state == "idle" || state == "unused") return "2";
  return "33";
}

namespace {

// Which sessions hold the GPU that it waits for: "; film holds the GPU". Empty where none does.
std::string HoldersText(const Json& session, const std::vector<Json>& sessions) {
  const std::vector<Json>& holders = List(session, "held_by");
  if (holders.empty()) return "";
  const auto first = std::find_if(sessions.begin(), sessions.end(), [&](const Json& other) {
    return Member(other, "id") == holders.front();
  });
  if (first == sessions.end()) return "";
  const std::string name = CutText(Text(Member(*first, "name")), kMostOfName);
  return holders.size() == 1 ? fmt::format("; {} holds the GPU", name)
                             : fmt::format("; {} and {} more hold it", name, holders.size() - 1);
}

}  // namespace

std::string WhyText(const Json& session, const std::vector<Json>& sessions) {
  const Json& reason = Member(session, "reason");
  if (reason.is_string()) {
    const Json& expected = Member(session, "expected_wait_s");
    return Text(reason) + (expected.is_number() ? ", about " + SecondsText(expected) : "") +
           HoldersText(session, sessions);
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

}  // namespace tandem::cli
