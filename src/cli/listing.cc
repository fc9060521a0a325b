#include "src/cli/listing.h"

#include <fmt/core.h>
#include <pwd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/text.h"

namespace tandem::cli {
namespace {

using Json = nlohmann::json;
using Row = std::vector<std::string>;

constexpr size_t kMostColumns = 32;  // of a name in a table

Result<Json> Parse(const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Error{ErrorCode::kInvalid, "the daemon's answer is not JSON"};
  return json;
}

const Json& Member(const Json& json, const char* key) {
  static const Json kNone;
  if (!json.is_object()) return kNone;
  const auto found = json.find(key);
  return found == json.end() ? kNone : *found;
}

const std::vector<Json>& List(const Json& json, const char* key) {
  static const std::vector<Json> kNone;
  const Json& list = Member(json, key);
  return list.is_array() ? list.get_ref<const std::vector<Json>&>() : kNone;
}

std::string Text(const Json& value) {
  if (value.is_string()) return EscapeText(value.get_ref<const std::string&>());
  if (value.is_null() || value.is_structured()) return "-";
  return value.dump();
}

double Number(const Json& value) {
  return value.is_number() ? value.get<double>() : 0;
}

std::string Size(const Json& value) {
  return value.is_number_unsigned() ? FormatBytes(Bytes(value.get<uint64_t>())) : "-";
}

std::string Seconds(const Json& value) {
  if (!value.is_number()) return "-";
  const double seconds = value.get<double>();
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(std::min(seconds, 1e15));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

std::string Ids(const Json& json, const char* key) {
  std::string ids;
  for (const Json& id : List(json, key)) ids += (ids.empty() ? "" : ", ") + Text(id);
  return ids.empty() ? "nobody" : ids;
}

// How many columns of a terminal `text` takes: code points, near enough.
size_t Width(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

// At most kMostColumns of them: one long name must not push the rest off the screen.
std::string Cut(std::string text) {
  size_t columns = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((text[i] & 0xc0) == 0x80 || columns++ < kMostColumns - 1) continue;
    if (Width(text) > kMostColumns) text = text.substr(0, i) + "…";
    break;
  }
  return text;
}

// Columns wide enough for what is in them.
std::string Table(const std::vector<Row>& rows) {
  std::vector<size_t> widths(rows[0].size());
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string text;
  for (const Row& row : rows) {
    for (size_t i = 0; i + 1 < row.size(); ++i) {
      text += row[i] + std::string(widths[i] - Width(row[i]) + 2, ' ');
    }
    text += row.back() + "\n";
  }
  return text;
}

std::string GpuText(const Json& gpu) {
  const bool software = Member(gpu, "software") == true;
  std::string text = fmt::format("GPU {}  {}{}\n", Text(Member(gpu, "index")),
                                 Text(Member(gpu, "name")), software ? "  (software)" : "");
  text += fmt::format("  memory      {} on the card, {} to hand out, {} of it free\n",
                      Size(Member(gpu, "card_bytes")), Size(Member(gpu, "budget_bytes")),
                      Size(Member(gpu, "free_bytes")));
  text += fmt::format("  holding it  {}\n", Ids(gpu, "holders"));
  text += fmt::format("  waiting     {}\n", Ids(gpu, "waiting"));
  if (!List(gpu, "suspended").empty()) {
    text += fmt::format("  suspended   {}\n", Ids(gpu, "suspended"));
  }
  text += fmt::format("  policy      {}\n", Text(Member(gpu, "policy")));
  const std::string mode = Text(Member(gpu, "mode"));
  if (mode == "turns") {
    text += fmt::format("  mode        turns of at least {:.0f} ms; a switch costs {:.0f} ms\n",
                        Number(Member(gpu, "quantum_ms")), Number(Member(gpu, "switch_cost_ms")));
  } else {
    text += fmt::format("  mode        {}\n", mode);
  }
  text += fmt::format("  hand-overs  {}; {} to the host, {} back\n", Text(Member(gpu, "handovers")),
                      Size(Member(gpu, "out_bytes")), Size(Member(gpu, "in_bytes")));
  return text;
}

// Here and not in the daemon, which must not wait for a directory of users somewhere on the net.
std::string UserName(const Json& uid) {
  const passwd* user = uid.is_number_unsigned() ? getpwuid(uid.get<uid_t>()) : nullptr;
  return Text(user != nullptr ? Json(user->pw_name) : uid);
}

}  // namespace

Result<std::string> SessionsTable(const std::string& json) {
  ASSIGN_OR_RETURN(const Json answer, Parse(json));
  const auto& sessions = List(answer, "sessions");
  if (sessions.empty()) return std::string("No program shares a GPU now.\n");
  std::vector<Row> rows = {
      {"ID", "NAME", "PROGRAM", "PID", "USER", "STATE", "ON CARD", "ON HOST", "LIMIT", "WAITED"}};
  for (const Json& session : sessions) {
    std::string state = Text(Member(session, "state"));
    if (Member(session, "waits_for").is_string()) {
      state += " for " + Text(Member(session, "waits_for"));
    }
    rows.push_back({Text(Member(session, "id")), Cut(Text(Member(session, "name"))),
                    Cut(Text(Member(session, "program"))), Text(Member(session, "pid")),
                    UserName(Member(session, "uid")), state,
                    Size(Member(session, "resident_bytes")), Size(Member(session, "swapped_bytes")),
                    Size(Member(session, "limit_bytes")),
                    Seconds(Member(session, "wait_seconds"))});
  }
  return Table(rows);
}

Result<std::string> StatusText(const std::string& json) {
  ASSIGN_OR_RETURN(const Json answer, Parse(json));
  std::string text =
      fmt::format("tandemd {}  process {}, up {}, at {}\n", Text(Member(answer, "version")),
                  Text(Member(answer, "pid")), Seconds(Member(answer, "uptime_seconds")),
                  Text(Member(answer, "socket")));
  if (Member(answer, "chaos_seed").is_number()) {
    text += fmt::format("programs lose the card at random, for a test: TANDEM_SEED={}\n",
                        Text(Member(answer, "chaos_seed")));
  }
  if (Member(answer, "host_limit_bytes").is_number()) {
    text += fmt::format("host memory for what does not fit on the card: {} of {} promised\n",
                        Size(Member(answer, "host_promised_bytes")),
                        Size(Member(answer, "host_limit_bytes")));
  }
  if (Number(Member(answer, "spill_limit_bytes")) > 0) {
    text += fmt::format("of it in files in {}: {} of {}\n", Text(Member(answer, "spill_directory")),
                        Size(Member(answer, "spill_promised_bytes")),
                        Size(Member(answer, "spill_limit_bytes")));
  }
  for (const Json& gpu : List(answer, "gpus")) text += "\n" + GpuText(gpu);
  return text;
}

Result<std::string> HandoversTable(const std::string& json) {
  ASSIGN_OR_RETURN(const Json answer, Parse(json));
  const auto& handovers = List(answer, "handovers");
  if (handovers.empty()) return std::string("No GPU has changed hands yet.\n");
  std::vector<Row> rows = {{"EPOCH", "TO", "FROM", "LACKED", "WAS FREE", "OUT", "IN", "TOOK"}};
  for (const Json& handover : handovers) {
    const double took =
        Number(Member(handover, "running_at_ns")) - Number(Member(handover, "revoked_at_ns"));
    rows.push_back({Text(Member(handover, "epoch")), Text(Member(handover, "to")),
                    Ids(handover, "from"), Size(Member(handover, "lacked_bytes")),
                    Size(Member(handover, "free_bytes")), Size(Member(handover, "out_bytes")),
                    Size(Member(handover, "in_bytes")),
                    took > 0 && Number(Member(handover, "revoked_at_ns")) > 0
                        ? fmt::format("{:.1f} ms", took * 1e-6)
                        : "-"});
  }
  return Table(rows);
}

Result<std::string> PickSessions(const std::string& json, const std::string& concerned) {
  ASSIGN_OR_RETURN(const Json answer, Parse(json));
  ASSIGN_OR_RETURN(const Json order, Parse(concerned));
  const auto& numbers = List(order, "sessions");
  Json picked = Json::array();
  for (const Json& session : List(answer, "sessions")) {
    const Json& id = Member(session, "id");
    if (std::find(numbers.begin(), numbers.end(), id) != numbers.end()) picked.push_back(session);
  }
  return Json{{"sessions", std::move(picked)}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<std::string> PoliciesText(const std::string& json) {
  ASSIGN_OR_RETURN(const Json answer, Parse(json));
  std::vector<Row> gpus = {{"GPU", "POLICY", "MODE", "NAME"}};
  for (const Json& gpu : List(answer, "gpus")) {
    gpus.push_back({"gpu" + Text(Member(gpu, "index")), Text(Member(gpu, "policy")),
                    Text(Member(gpu, "mode")), Text(Member(gpu, "name"))});
  }
  std::vector<Row> policies;
  for (const Json& policy : List(answer, "policies")) {
    policies.push_back({Text(Member(policy, "name")), Text(Member(policy, "summary"))});
  }
  return Table(gpus) + "\n" + Table(policies);
}

Result<std::string> PoliciesJson(const std::string& json) {
  ASSIGN_OR_RETURN(const Json answer, Parse(json));
  Json gpus = Json::array();
  for (const Json& gpu : List(answer, "gpus")) {
    gpus.push_back({{"index", Member(gpu, "index")}, {"policy", Member(gpu, "policy")}});
  }
  const Json policies = {{"gpus", std::move(gpus)}, {"policies", Member(answer, "policies")}};
  return CompactJson(policies.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Result<std::string> PolicyChanges(const std::string& json) {
  ASSIGN_OR_RETURN(const Json answer, Parse(json));
  std::string text;
  for (const Json& gpu : List(answer, "gpus")) {
    const std::string policy = Text(Member(gpu, "policy")), before = Text(Member(gpu, "before"));
    text += fmt::format("gpu{}: {}{}\n", Text(Member(gpu, "index")), policy,
                        policy == before ? ", as before" : fmt::format(", before {}", before));
  }
  return text;
}

Result<std::string> SharesTable(const std::string& json) {
  ASSIGN_OR_RETURN(const Json answer, Parse(json));
  const auto& sessions = List(answer, "sessions");
  if (sessions.empty()) return std::string("No program shares a GPU now.\n");
  std::vector<Row> rows = {{"USER", "ITS SHARE", "SESSION", "SHARE OF THAT", "HELD", "NAME"}};
  for (const Json& session : sessions) {
    rows.push_back({UserName(Member(session, "uid")), Text(Member(session, "user_share")),
                    Text(Member(session, "id")), Text(Member(session, "share")),
                    Seconds(Member(session, "held_seconds")), Cut(Text(Member(session, "name")))});
  }
  return Table(rows);
}

Result<std::string> SharesJson(const std::string& json) {
  ASSIGN_OR_RETURN(const Json answer, Parse(json));
  Json shares = Json::array();
  for (const Json& session : List(answer, "sessions")) {
    Json share;
    for (const char* key : {"id", "name", "uid", "user_share", "share", "held_seconds"}) {
      share[key] = Member(session, key);
    }
    shares.push_back(std::move(share));
  }
  return CompactJson(
      Json{{"sessions", std::move(shares)}}.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Result<std::string> ShareChanges(const std::string& json) {
  ASSIGN_OR_RETURN(const Json answer, Parse(json));
  std::string text;
  for (const Json& change : List(answer, "changed")) {
    const Json& session = Member(change, "session");
    const std::string whose =
        session.is_null() ? "user " + Text(Member(change, "user")) : "session " + Text(session);
    text += fmt::format("{}: {}, before {}\n", whose, Text(Member(change, "share")),
                        Text(Member(change, "before")));
  }
  if (text.empty()) text = "It uses no GPU yet; the order stands.\n";
  for (const Json& gpu : List(answer, "gpus_without_shares")) {
    text += fmt::format(
        "On gpu{0} shares do not count now: `tandem policy gpu{0} fair` makes them.\n", Text(gpu));
  }
  return text;
}

bool NoSessions(const std::string& json) {
  const Result<Json> answer = Parse(json);
  return !answer.ok() || List(*answer, "sessions").empty();
}

bool AllSuspended(const std::string& json) {
  const Result<Json> answer = Parse(json);
  if (!answer.ok()) return false;
  const auto& sessions = List(*answer, "sessions");
  return std::all_of(sessions.begin(), sessions.end(),
                     [](const Json& session) { return Member(session, "state") == "suspended"; });
}

std::string StayingText(const std::string& json) {
  const Result<Json> answer = Parse(json);
  Bytes staying;
  if (!answer.ok()) return {};
  for (const Json& session : List(*answer, "sessions")) {
    const Json& bytes = Member(session, "fixed_bytes");
    if (bytes.is_number_unsigned()) staying += Bytes(bytes.get<uint64_t>());
  }
  if (staying == Bytes()) return {};
  return fmt::format(
      "{} cannot leave the card, beside contexts: arrays, managed and shared memory and the "
      "like.\n",
      FormatBytes(staying));
}

Result<std::string> CompactJson(const std::string& json) {
  ASSIGN_OR_RETURN(const Json answer, Parse(json));
  return answer.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

}  // namespace tandem::cli
