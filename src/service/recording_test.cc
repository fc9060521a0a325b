// What the daemon records of itself.
#include <gtest/gtest.h>

#include "src/base/json.h"
#include "src/history/line.h"
#include "src/service/service_test.h"

namespace tandem::service {
namespace {

std::vector<history::Record>& Records() {
  static std::vector<history::Record> records;
  return records;
}

class RecordingTest : public ServiceTest {
 protected:
  RecordingTest() : ServiceTest(WithRecords()) {}

  static ServiceConfig WithRecords() {
    static uint64_t token = 0;
    Records().clear();
    ServiceConfig config = Config({}, {}, GiB(1), false, {}, &token);
    config.record = [](history::Record record) { Records().push_back(std::move(record)); };
    return config;
  }
  // The lines from the `from`th record on.
  static std::vector<Json> Lines(size_t from = 0) {
    std::vector<Json> lines;
    for (size_t i = from; i < Records().size(); ++i) {
      const std::string line = history::LineOf(Records()[i]);
      if (!line.empty()) lines.push_back(ParseJson(line));
    }
    return lines;
  }
  static std::vector<std::string> Kinds(size_t from = 0) {
    std::vector<std::string> kinds;
    for (const Json& line : Lines(from)) kinds.push_back(line["event"]);
    return kinds;
  }
  static std::vector<history::Usage> Usages() {
    std::vector<history::Usage> usages;
    for (const history::Record& record : Records()) {
      if (const auto* usage = std::get_if<history::Usage>(&record.what)) usages.push_back(*usage);
    }
    return usages;
  }
  void Pass(Duration time) { now_ = now_ + time; }
};

TEST_F(RecordingTest, BeginsWithTheDaemonAndItsGpus) {
  ASSERT_EQ(Kinds(), std::vector<std::string>{"daemon"});
  EXPECT_EQ(Lines()[0]["gpus"][0]["budget_bytes"], MiB(100).count);
}

TEST_F(RecordingTest, ASessionIsNamedBeforeAnythingIsSaidOfIt) {
  const size_t before = Records().size();
  Join(1, 11);
  Want(1, MiB(10));
  EXPECT_EQ(Kinds(before),
            (std::vector<std::string>{"session", "added", "reserve", "ready", "grant"}));
  EXPECT_EQ(Lines(before)[0]["program"], "train");
  EXPECT_EQ(Lines(before)[0]["pid"], 11);
}

TEST_F(RecordingTest, WhatIsUsedIsToldEveryTenSecondsAndAtTheEnd) {
  Join(1, 11);
  Want(1, MiB(10));
  Say(1, wire::Running{Heard<wire::Grant>(1).epoch, 0});
  Pass(Seconds(10));
  ASSERT_LE(service_.wake(), now_);
  service_.OnTick(now_);
  ASSERT_EQ(Usages().size(), 1u);
  EXPECT_DOUBLE_EQ(Usages()[0].held_s, 10);
  EXPECT_DOUBLE_EQ(Usages()[0].active_s, 10);
  EXPECT_DOUBLE_EQ(Usages()[0].allocated_byte_s, 10.0 * static_cast<double>(MiB(10).count));
  EXPECT_FALSE(Usages()[0].last);
  Pass(Seconds(4));
  service_.OnProcessGone(11, now_);
  ASSERT_EQ(Usages().size(), 2u);
  EXPECT_DOUBLE_EQ(Usages()[1].held_s, 4);
  EXPECT_TRUE(Usages()[1].last);
  // Without sessions there is nothing to tell.
  Pass(Seconds(100));
  service_.OnTick(now_);
  EXPECT_EQ(Usages().size(), 2u);
}

TEST_F(RecordingTest, IntervalsFollowEachOtherAndEndWithTheHour) {
  now_ = Instant(int64_t{3600 - 3} * 1000000000);
  Join(1, 11);
  Pass(Seconds(3));
  service_.OnTick(now_);
  Pass(Seconds(10));
  service_.OnTick(now_);
  ASSERT_EQ(Usages().size(), 2u);
  EXPECT_EQ(Usages()[0].to_unix_ns, int64_t{3600} * 1000000000);
  EXPECT_EQ(Usages()[1].from_unix_ns, Usages()[0].to_unix_ns);
}

TEST_F(RecordingTest, AWaitCountsForWhoWaits) {
  Join(1, 11);
  Want(1, MiB(80));
  const core::Epoch epoch = Heard<wire::Grant>(1).epoch;
  Say(1, wire::Running{epoch, 0});
  Join(2, 12);
  Want(2, MiB(80));
  Pass(Seconds(10));
  service_.OnTick(now_);
  double waited[] = {0, 0, 0};
  for (const history::Usage& usage : Usages()) waited[usage.of->session] += usage.waited_s;
  EXPECT_DOUBLE_EQ(waited[1], 0);
  EXPECT_DOUBLE_EQ(waited[2], 10);
}

TEST_F(RecordingTest, WhoRegistersAgainGoesOn) {
  Join(1, 11);
  Want(1, MiB(10));
  Pass(Seconds(2));
  Join(2, 11);  // the same process
  Pass(Seconds(1));
  service_.OnProcessGone(11, now_);
  ASSERT_EQ(Usages().size(), 2u);
  EXPECT_DOUBLE_EQ(Usages()[0].held_s, 2);
  EXPECT_DOUBLE_EQ(Usages()[1].held_s, 0);  // it has not asked for the lease again
  EXPECT_EQ(Usages()[1].from_unix_ns, Usages()[0].to_unix_ns);
  EXPECT_EQ(Usages()[0].of->session, Usages()[1].of->session);
}

TEST_F(RecordingTest, AtTheDaemonsEndNothingIsMissing) {
  Join(1, 11);
  Want(1, MiB(10));
  Pass(Seconds(3));
  service_.OnEnding(now_);
  ASSERT_EQ(Usages().size(), 1u);
  EXPECT_DOUBLE_EQ(Usages()[0].held_s, 3);
}

}  // namespace
}  // namespace tandem::service
