#include "src/serve/snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/json.h"
#include "src/serve/report_answer.h"

namespace tandem::serve {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr uid_t kOwn = 4000000001, kOther = 4000000002;  // users without names

Json Gpu() {
  return {{"index", 0},          {"uuid", "GPU-1"},   {"name", "Soft \"GPU\""},
          {"policy", "fair"},    {"mode", "turns"},   {"card_bytes", 1000},
          {"budget_bytes", 900}, {"free_bytes", 100}, {"charged_bytes", 800},
          {"foreign_bytes", 50}, {"held_s", 12.5},    {"busy_s", 10.25},
          {"handovers", 3},      {"out_bytes", 5},    {"in_bytes", 6}};
}

Json Session(int id, uid_t uid, const std::string& name) {
  return {{"id", id},
          {"uid", uid},
          {"gpu", 0},
          {"name", name},
          {"program", name + ".bin"},
          {"pid", 100 + id},
          {"run", 7},
          {"class", "batch"},
          {"state", "waiting"},
          {"reason_code", "turn"},
          {"held_s", 1.5},
          {"resident_bytes", 42}};
}

cli::top::Model ModelOf(const std::vector<Json>& sessions) {
  cli::top::Model model;
  const Json status = {{"version", "1"},       {"pid", 9},       {"uptime_s", 5}, {"socket", "s"},
                       {"accounts_file", "a"}, {"gpus", {Gpu()}}};
  const Json runs = {
      {{"uid", kOther}, {"name", "idle run"}, {"program", "sleep"}, {"pid", 77}, {"run", 8}}};
  EXPECT_TRUE(
      model.Take(JsonText(status), JsonText({{"sessions", sessions}, {"runs", runs}})).ok());
  return model;
}

TEST(SnapshotTest, HasUsersAndTheSameMomentEverywhere) {
  const Snapshot snapshot =
      MakeSnapshot(ModelOf({Session(1, kOwn, "film")}), 1'800'000'000'000'000'000, std::nullopt);
  const Json live = ParseJson(snapshot.live), sessions = ParseJson(snapshot.sessions);
  EXPECT_EQ(live.at("at"), "2027-01-15T08:00:00.000000Z");
  EXPECT_EQ(live.at("at"), sessions.at("at"));
  EXPECT_EQ(live.at("at"), ParseJson(snapshot.gpus).at("at"));
  EXPECT_EQ(sessions.at("sessions")[0].at("user"), std::to_string(kOwn));
  EXPECT_EQ(sessions.at("sessions")[0].at("project"), "");
  EXPECT_EQ(sessions.at("runs")[0].at("user"), std::to_string(kOther));
  EXPECT_TRUE(snapshot.daemon);
  EXPECT_EQ(snapshot.accounts_file, "a");
}

TEST(SnapshotTest, WithoutADaemonSaysSo) {
  cli::top::Model model = ModelOf({Session(1, kOwn, "film")});
  model.Lose("No daemon runs.");
  const Snapshot snapshot = MakeSnapshot(model, 0, std::nullopt);
  const Json live = ParseJson(snapshot.live);
  EXPECT_EQ(live.at("error"), "No daemon runs.");
  EXPECT_EQ(live.at("pid"), nullptr);
  EXPECT_EQ(live.at("sessions"), Json::array());
  EXPECT_THAT(snapshot.open_metrics, HasSubstr("tandem_up 0\n"));
  EXPECT_FALSE(snapshot.daemon);
}

TEST(SnapshotTest, PrivacyHidesOtherUsersPrograms) {
  const Snapshot snapshot =
      MakeSnapshot(ModelOf({Session(1, kOwn, "mine"), Session(2, kOther, "secret")}), 0, kOwn);
  for (const std::string& text : {snapshot.live, snapshot.sessions, snapshot.gpus,
                                  snapshot.open_metrics, snapshot.text_metrics}) {
    EXPECT_THAT(text, Not(HasSubstr("secret")));
    EXPECT_THAT(text, Not(HasSubstr("idle run")));
    EXPECT_THAT(text, Not(HasSubstr("102")));
    EXPECT_THAT(text, Not(HasSubstr("77")));
  }
  const Json sessions = ParseJson(snapshot.sessions);
  EXPECT_EQ(sessions.at("sessions")[0].at("name"), "mine");
  EXPECT_EQ(sessions.at("sessions")[0].at("pid"), 101);
  const Json& hidden = sessions.at("sessions")[1];
  EXPECT_EQ(hidden.at("name"), kHidden);
  EXPECT_EQ(hidden.at("program"), kHidden);
  EXPECT_EQ(hidden.at("pid"), nullptr);
  EXPECT_EQ(hidden.at("run"), nullptr);
  EXPECT_EQ(hidden.at("resident_bytes"), 42);
}

TEST(SnapshotTest, MetricsAreOfBothFormats) {
  const Snapshot snapshot =
      MakeSnapshot(ModelOf({Session(1, kOwn, "fi\\l\"m\n\x1b[2J")}), 0, std::nullopt);
  const std::string& open = snapshot.open_metrics;
  EXPECT_THAT(open, HasSubstr("# TYPE tandem_gpu_active_seconds counter\n"
                              "# UNIT tandem_gpu_active_seconds seconds\n"));
  EXPECT_THAT(open, HasSubstr("\ntandem_gpu_active_seconds_total{gpu=\"0\"} 10.25\n"));
  EXPECT_THAT(open, HasSubstr("\ntandem_gpu_memory_bytes{gpu=\"0\",kind=\"foreign\"} 50\n"));
  EXPECT_THAT(open, HasSubstr("\ntandem_gpu_waiting_sessions{gpu=\"0\",reason=\"turn\"} 1\n"));
  EXPECT_THAT(open, HasSubstr("\ntandem_gpu_waiting_sessions{gpu=\"0\",reason=\"memory\"} 0\n"));
  EXPECT_THAT(open, HasSubstr("name=\"Soft \\\"GPU\\\"\""));
  EXPECT_TRUE(open.ends_with("# EOF\n"));
  const std::string labels =
      R"({gpu="0",session="1",user="4000000001",run="fi\\l\"m\\x0a\\x1b[2J",program=)";
  EXPECT_THAT(open, HasSubstr("\ntandem_session_held_seconds_total" + labels));
  EXPECT_THAT(snapshot.text_metrics, HasSubstr("# TYPE tandem_gpu_active_seconds_total counter\n"));
  EXPECT_THAT(snapshot.text_metrics, Not(HasSubstr("# UNIT")));
  EXPECT_THAT(snapshot.text_metrics, Not(HasSubstr("# EOF")));
}

history::AccountsRow Row(std::vector<std::string> keys, uint64_t held_ns) {
  history::AccountsRow row;
  row.keys = std::move(keys);
  row.amounts.held_ns = held_ns;
  row.sessions = 1;
  row.share = 0.25;
  return row;
}

TEST(HideRunsTest, AddsUpWhatIsHidden) {
  using history::AccountsKey;
  cli::Report report;
  report.query.by = {AccountsKey::kRun, AccountsKey::kUser};
  report.answer.rows = {Row({"mine", "anna"}, 1), Row({"secret", "bob"}, 2),
                        Row({"secret 2", "bob"}, 3), Row({"secret", "carl"}, 4)};
  cli::Report by_user = report;
  HideRuns("anna", true, &by_user);
  ASSERT_EQ(by_user.answer.rows.size(), 3U);
  EXPECT_EQ(by_user.answer.rows[1].keys, (std::vector<std::string>{kHidden, "bob"}));
  EXPECT_EQ(by_user.answer.rows[1].amounts.held_ns, 5U);
  HideRuns("anna", false, &report);
  ASSERT_EQ(report.answer.rows.size(), 2U);
  EXPECT_EQ(report.query.by, std::vector<AccountsKey>{AccountsKey::kRun});
  EXPECT_EQ(report.answer.rows[1].keys, std::vector<std::string>{kHidden});
  EXPECT_EQ(report.answer.rows[1].amounts.held_ns, 9U);
  EXPECT_EQ(report.answer.rows[1].sessions, 3U);
  EXPECT_DOUBLE_EQ(report.answer.rows[1].share, 0.75);
}

}  // namespace
}  // namespace tandem::serve
