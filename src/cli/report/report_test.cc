#include "src/cli/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>

#include "src/base/json.h"
#include "src/cli/report/keys.h"

namespace tandem::cli {
namespace {

using history::AccountsKey;
using history::AccountsRow;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kSecond = 1'000'000'000;

AccountsRow Row(std::vector<std::string> keys, uint64_t held_s, double share) {
  AccountsRow row;
  row.keys = std::move(keys);
  row.amounts.held_ns = held_s * kSecond + kSecond / 2;
  row.amounts.active_ns = kSecond;
  row.amounts.waited_ns = 90 * kSecond;
  row.amounts.allocated_byte_s = 16.0 * 3600 * (1 << 30);
  row.amounts.handovers = 12;
  row.amounts.out_bytes = 1 << 20;
  row.sessions = 3;
  row.share = share;
  return row;
}

class ReportTest : public testing::Test {
 protected:
  ReportTest() {
    setenv("TZ", "Europe/Berlin", 1);
    tzset();
    report_.by = "user";
    report_.query.by = {AccountsKey::kUser};
    report_.query.since_ns = 1'764'547'200 * int64_t{1'000'000'000};  // 2025-12-01T00:00:00Z
    report_.query.until_ns = report_.query.since_ns + 86'400 * int64_t{1'000'000'000};
    report_.answer.begin_ns = report_.query.since_ns;
    report_.answer.gpus = {"GPU-0123456789abcdef"};
    report_.answer.gpu_indices = {1};
    report_.answer.rows = {Row({"anna"}, 43'200, 0.5), Row({""}, 61, 0.001)};
    report_.answer.sum = Row({}, 43'261, 0.501);
  }
  std::string Text(size_t columns = 0) const { return ReportText(report_, {columns, false}); }

  Report report_;
};

TEST_F(ReportTest, TheTableHasRowsAndTheirSum) {
  EXPECT_EQ(Text(52),
            "2025-12-01 01:00 to 2025-12-02 01:00, 1 GPU\n"
            "\n"
            "USER    HELD         SHARE  ACTIVE  WAITED\n"
            "anna    12 h 00 min  50.0%  1.0 s   1 min 30 s\n"
            "-       1 min 01 s   0.1%   1.0 s   1 min 30 s\n"
            "in all  12 h 01 min  50.1%  1.0 s   1 min 30 s\n");
  EXPECT_THAT(Text(), HasSubstr("16.0 GiB h"));
  EXPECT_THAT(Text(), HasSubstr("1 MiB"));
}

TEST_F(ReportTest, NoLineIsWiderThanTheTerminal) {
  for (const size_t columns : {20, 40, 80, 120}) {
    const std::string text = Text(columns);
    for (size_t at = text.find("\n\n") + 2; at < text.size();) {
      const size_t end = text.find('\n', at);
      EXPECT_LE(WidthOf(text.substr(at, end - at)), columns);
      at = end + 1;
    }
  }
}

TEST_F(ReportTest, KeysAreForPeople) {
  report_.query.by = {AccountsKey::kDay, AccountsKey::kHour, AccountsKey::kGpu};
  report_.answer.rows = {Row(
      {"2025-12-01T00:00:00+01:00", "2025-12-01T07:00:00+01:00", "GPU-0123456789abcdef"}, 1, 1)};
  EXPECT_THAT(Text(), HasSubstr("\n2025-12-01  2025-12-01 07:00  gpu1 GPU-0123456…  1.5 s"));
  EXPECT_THAT(Text(), HasSubstr("\nDAY         HOUR              GPU "));
}

TEST_F(ReportTest, SaysWhenTheAccountsBegin) {
  report_.answer.begin_ns += 3600 * int64_t{1'000'000'000};
  EXPECT_THAT(Text(), HasSubstr(", 1 GPU; the accounts begin 2025-12-01 02:00\n"));
}

TEST_F(ReportTest, NothingIsSaid) {
  report_.answer = {};
  EXPECT_EQ(Text(), "No session used a GPU from 2025-12-01 01:00 to 2025-12-02 01:00.\n");
  report_.query.user = "bert\x1b[31m";
  EXPECT_THAT(Text(), HasSubstr("No session of bert\\x1b[31m used"));
  EXPECT_EQ(ParseJson(ReportJson(report_))["rows"].size(), 0u);
}

TEST_F(ReportTest, NamesReachNoTerminal) {
  report_.answer.rows = {Row({"\x1b]0;evil\x07\n\xff"}, 1, 1)};
  for (const std::string& text : {Text(), ReportCsv(report_), ReportJson(report_)}) {
    EXPECT_THAT(text, Not(HasSubstr("\x1b")));
    EXPECT_THAT(text, Not(HasSubstr("\x07")));
    EXPECT_THAT(text, HasSubstr("evil"));
  }
}

TEST_F(ReportTest, CsvHasNoFormulas) {
  report_.query.by = {AccountsKey::kProject};
  report_.answer.rows.clear();
  for (const char* name : {"=1+1", "+1", "-1", "@SUM(A1)", "＝1", "a,\"b\"", "\t=1", "a=b", ""}) {
    report_.answer.rows.push_back(Row({name}, 1, 1));
  }
  std::vector<std::string> names;
  std::istringstream lines(ReportCsv(report_));
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line,
            "project,held_s,active_s,waited_s,allocated_byte_s,resident_byte_s,swapped_byte_s,"
            "handovers,out_bytes,in_bytes,sessions,share");
  while (std::getline(lines, line)) names.push_back(line.substr(0, line.find(",1.500000")));
  EXPECT_THAT(names, ElementsAre("\"'=1+1\"", "\"'+1\"", "\"'-1\"", "\"'@SUM(A1)\"", "\"'＝1\"",
                                 "\"a,\"\"b\"\"\"", "\"\\x09=1\"", "\"a=b\"", "\"\""));
  EXPECT_THAT(
      ReportCsv(report_),
      HasSubstr(",1.500000,1.000000,90.000000,61847529062400,0,0,12,1048576,0,3,1.000000\n"));
}

TEST_F(ReportTest, JsonIsAsAgreed) {
  report_.by = "day,project";
  report_.query.by = {AccountsKey::kDay, AccountsKey::kProject};
  report_.answer.rows = {Row({"2025-12-01T00:00:00+01:00", ""}, 12, 0.5)};
  const auto json = ParseJson(ReportJson(report_));
  EXPECT_EQ(json["format"], 1);
  EXPECT_EQ(json["since"], "2025-12-01T00:00:00.000000Z");
  EXPECT_EQ(json["by"], "day,project");
  const auto& row = json["rows"][0];
  EXPECT_EQ(row["day"], "2025-12-01T00:00:00+01:00");
  EXPECT_TRUE(row["project"].is_null());
  EXPECT_EQ(row["held_s"], 12.5);
  EXPECT_EQ(row["sessions"], 3);
  EXPECT_EQ(json["sum"]["held_s"], 43261.5);
}

TEST(ReportOptionsTest, MistakesAreNamed) {
  const auto mistake = [](auto change) {
    ReportOptions options;
    options.file = "/nothing/accounts.db";
    change(&options);
    const auto report = MakeReport(options);
    return report.ok() ? std::pair(ErrorCode::kFailed, std::string("none"))
                       : std::pair(report.error().code, report.error().message);
  };
  using Options = ReportOptions*;
  const auto early = mistake([](Options options) { options->until = "8d"; });
  EXPECT_EQ(early.first, ErrorCode::kInvalid);
  EXPECT_EQ(early.second, "--since 7d is not before --until 8d");
  EXPECT_EQ(mistake([](Options options) { options->since = "2100-01-01"; }).first,
            ErrorCode::kInvalid)
      << "in the future";
  EXPECT_EQ(mistake([](Options options) { options->by = "user,team"; }).second,
            "'team' is none of user, project, run, gpu, hour, day");
  EXPECT_EQ(mistake([](Options options) { options->by = "user,user"; }).second,
            "'user' is there twice");
  EXPECT_EQ(mistake([](Options) {}).first, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace tandem::cli
