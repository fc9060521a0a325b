#include "src/cli/listing.h"

#include <fmt/core.h>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/json.h"
#include "src/cli/fields.h"
#include "src/cli/table.h"

namespace tandem::cli {
namespace {

using Json = nlohmann::json;

std::string Ids(const Json& json, const char* key) {
  std::string ids;
  for (const Json& id : List(json, key)) ids += (ids.empty() ? "" : ", ") + Text(id);
  return ids.empty() ? "nobody" : ids;
}

std::string GpuText(const Json& gpu) {
  const bool software = Member(gpu, "software") == true;
  std::string text = fmt::format("GPU {}  {}{}\n", Text(Member(gpu, "index")),
                                 Text(Member(gpu, "name")), software ? "  (software)" : "");
  text += fmt::format("  memory      {} on the card, {} to hand out, {} of it free\n",
                      Size(Member(gpu, "card_bytes")), Size(Member(gpu, "budget_bytes")),
                      Size(Member(gpu, "free_bytes")));
  if (Member(gpu, "healthy") == false) {
    text +=
        "  health      lost: the driver no longer answers for it; see the kernel's log (dmesg)\n";
  }
  text += fmt::format("  holding it  {}\n", Ids(gpu, "holders"));
  text += fmt::format("  waiting     {}\n", Ids(gpu, "waiting"));
  if (!List(gpu, "blocked_by").empty()) {
    text += fmt::format("  blocked by  {}, which does not give up what it was asked for\n",
                        Ids(gpu, "blocked_by"));
  }
  if (!List(gpu, "suspended").empty()) {
    text += fmt::format("  suspended   {}\n", Ids(gpu, "suspended"));
  }
  text += fmt::format("  policy      {}\n", Text(Member(gpu, "policy")));
  const std::string mode = Text(Member(gpu, "mode"));
  if (mode == "turns") {
    text += fmt::format("  mode        turns of at least {:.0f} ms; a switch costs {:.0f} ms\n",
                        Number(Member(gpu, "quantum_s")) * 1e3,
                        Number(Member(gpu, "switch_cost_s")) * 1e3);
  } else {
    text += fmt::format("  mode        {}\n", mode);
  }
  text += fmt::format("  hand-overs  {}; {} to the host, {} back\n", Text(Member(gpu, "handovers")),
                      Size(Member(gpu, "out_bytes")), Size(Member(gpu, "in_bytes")));
  return text;
}

}  // namespace

Result<std::string> StatusText(const std::string& json, const Screen& /*screen*/) {
  ASSIGN_OR_RETURN(const Json answer, Parse(json));
  std::string text =
      fmt::format("tandemd {}  process {}, up {}, at {}\n", Text(Member(answer, "version")),
                  Text(Member(answer, "pid")), SecondsText(Member(answer, "uptime_s")),
                  Text(Member(answer, "socket")));
  if (Member(answer, "chaos_seed").is_string()) {
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

Result<std::string> HandoversTable(const std::string& json, const Screen& screen) {
  ASSIGN_OR_RETURN(const Json answer, Parse(json));
  const auto& handovers = List(answer, "handovers");
  if (handovers.empty()) return std::string("No GPU has changed hands yet.\n");
  Table table({{"EPOCH"},
               {"TO"},
               {"FROM"},
               {"LACKED", 2},
               {"WAS FREE", 1},
               {"OUT"},
               {"IN"},
               {"TOOK"},
               {"WHY", 3, true}});
  for (const Json& handover : handovers) {
    const double took = Number(Member(handover, "took_s"));
    const bool given_up = Member(handover, "given_up") == true;
    table.Add({{Text(Member(handover, "epoch"))},
               {Text(Member(handover, "to"))},
               {Ids(handover, "from")},
               {Size(Member(handover, "lacked_bytes"))},
               {Size(Member(handover, "free_bytes"))},
               {Size(Member(handover, "out_bytes"))},
               {Size(Member(handover, "in_bytes"))},
               {took > 0 ? fmt::format("{:.1f} ms", took * 1e3) : "-"},
               {Text(Member(handover, "reason")) + (given_up ? "; given up" : "")}});
  }
  return table.Show(screen);
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
  return JsonText(Json{{"sessions", std::move(picked)}});
}

Result<std::string> PoliciesText(const std::string& json) {
  ASSIGN_OR_RETURN(const Json answer, Parse(json));
  Table gpus({{"GPU"}, {"POLICY"}, {"MODE"}, {"NAME"}});
  for (const Json& gpu : List(answer, "gpus")) {
    gpus.Add({{"gpu" + Text(Member(gpu, "index"))},
              {Text(Member(gpu, "policy"))},
              {Text(Member(gpu, "mode"))},
              {Text(Member(gpu, "name"))}});
  }
  Table policies({{"NAME"}, {"WHAT IT DOES"}});
  for (const Json& policy : List(answer, "policies")) {
    policies.Add({{Text(Member(policy, "name"))}, {Text(Member(policy, "summary"))}});
  }
  return gpus.Show({}) + "\n" + policies.Show({});
}

Result<std::string> PoliciesJson(const std::string& json) {
  ASSIGN_OR_RETURN(const Json answer, Parse(json));
  Json gpus = Json::array();
  for (const Json& gpu : List(answer, "gpus")) {
    gpus.push_back({{"index", Member(gpu, "index")}, {"policy", Member(gpu, "policy")}});
  }
  const Json policies = {{"gpus", std::move(gpus)}, {"policies", Member(answer, "policies")}};
  return CompactJson(JsonText(policies));
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
  Table table({{"USER"}, {"ITS SHARE"}, {"SESSION"}, {"SHARE OF THAT"}, {"HELD"}, {"NAME"}});
  for (const Json& session : sessions) {
    table.Add({{UserName(Member(session, "uid"))},
               {Text(Member(session, "user_share"))},
               {Text(Member(session, "id"))},
               {Text(Member(session, "share"))},
               {SecondsText(Member(session, "held_s"))},
               {CutText(Text(Member(session, "name")), kMostOfName)}});
  }
  return table.Show({});
}

Result<std::string> SharesJson(const std::string& json) {
  ASSIGN_OR_RETURN(const Json answer, Parse(json));
  Json shares = Json::array();
  for (const Json& session : List(answer, "sessions")) {
    Json share;
    for (const char* key : {"id", "name", "uid", "user_share", "share", "held_s"}) {
      share[key] = Member(session, key);
    }
    shares.push_back(std::move(share));
  }
  return CompactJson(JsonText(Json{{"sessions", std::move(shares)}}));
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
  return AsciiJson(answer);
}

}  // namespace tandem::cli
