#include "src/history/usage_series.h"

#include <nlohmann/json.hpp>
#include <numeric>

#include "src/base/json.h"
#include "src/history/history_test.h"

namespace tandem::history {
namespace {

using Json = nlohmann::json;

Amounts Active(double seconds) {
  Usage usage;
  usage.held_s = usage.active_s = seconds;
  usage.resident_byte_s = seconds * 100;
  return AmountsOf(usage);
}

double Sum(const Json& values) {
  return std::accumulate(values.begin(), values.end(), 0.0, [](double sum, const Json& value) {
    return sum + (value.is_null() ? 0 : value.get<double>());
  });
}

int64_t At(int64_t second) {
  return (kMonday + second) * kNsInSecond;
}

TEST(UsageSeriesTest, WhatSpansStepsIsSplitInProportion) {
  UsageSeries series(At(0), At(30), 10);
  series.Add("a", At(5), At(25), Active(20));
  const Json json = series.ToJson();
  EXPECT_EQ(json["times"], Json::array({kMonday, kMonday + 10, kMonday + 20}));
  const Json& one = json["series"][0];
  EXPECT_EQ(one["key"], "a");
  EXPECT_EQ(one["active_s"], Json::array({5.0, 10.0, 5.0}));
  EXPECT_EQ(one["resident_bytes"], Json::array({50.0, 100.0, 50.0}));
}

TEST(UsageSeriesTest, WhatIsOutsideDoesNotCount) {
  UsageSeries series(At(10), At(20), 10);
  series.Add("a", At(0), At(20), Active(20));
  series.Add("a", At(20), At(40), Active(20));
  EXPECT_EQ(series.ToJson()["series"][0]["active_s"], Json::array({10.0}));
}

TEST(UsageSeriesTest, StepsBeginAtMultiplesOfTheirLength) {
  UsageSeries series(At(7), At(23), 10);
  series.Add("a", At(7), At(23), Active(16));
  const Json json = series.ToJson();
  EXPECT_EQ(json["times"], Json::array({kMonday, kMonday + 10, kMonday + 20}));
  EXPECT_EQ(json["series"][0]["active_s"], Json::array({3.0, 10.0, 3.0}));
  // Means are over the part of the step that the interval has.
  EXPECT_EQ(json["series"][0]["resident_bytes"], Json::array({100.0, 100.0, 100.0}));
}

TEST(UsageSeriesTest, BeforeTheBeginNothingIsKnown) {
  UsageSeries series(At(0), At(30), 10);
  series.BeginsAt(At(12));
  series.Add("a", At(20), At(30), Active(3));
  EXPECT_EQ(series.ToJson()["series"][0]["active_s"], Json::array({nullptr, 0.0, 3.0}));
}

TEST(UsageSeriesTest, SessionsThatShareAGpuAreActiveNoLongerThanTimePasses) {
  UsageSeries series(At(0), At(10), 10);
  series.CapActive();
  series.Add("gpu0", At(0), At(10), Active(8));
  series.Add("gpu0", At(0), At(10), Active(7));
  const Json json = series.ToJson();
  EXPECT_EQ(json["series"][0]["active_s"], Json::array({10.0}));
  EXPECT_EQ(json["series"][0]["held_s"], Json::array({15.0}));
}

class ReadSeriesTest : public HistoryTest {
 protected:
  static std::string Name(unsigned uid) { return uid == 1001 ? "anna" : std::to_string(uid); }
  static std::string Line(int64_t second, Json fields) {
    fields["at"] = UtcTime(At(second));
    fields["ns"] = second * kNsInSecond;
    return JsonText(fields) + "\n";
  }
  static std::string SessionLine(int64_t second, int session, unsigned uid, const char* project) {
    return Line(second,
                {{"event", "session"}, {"session", session}, {"uid", uid}, {"project", project}});
  }
  static std::string UsageLine(int64_t second, int session, int gpu, double active_s) {
    return Line(second, {{"event", "usage"},
                         {"session", session},
                         {"gpu", gpu},
                         {"seconds", 10.0},
                         {"active_s", active_s},
                         {"held_s", 10.0},
                         {"waited_s", 10 - active_s}});
  }
  Json Read(const SeriesQuery& query, const std::string& accounts = "") {
    const auto answer = ReadSeries(events_, accounts, query, Name);
    EXPECT_TRUE(answer.ok()) << answer.error().message;
    return answer.ok() ? *answer : Json();
  }

  const std::string events_ = directory_ + "/events.jsonl";
};

TEST_F(ReadSeriesTest, AnHourComesFromTheEventLog) {
  std::ofstream(events_) << Line(0, {{"event", "daemon"}}) << SessionLine(1, 7, 1001, "vision")
                         << SessionLine(1, 8, 1002, "") << UsageLine(20, 7, 0, 4)
                         << UsageLine(20, 8, 1, 5) << "garbage\n"
                         << UsageLine(30, 7, 0, 6);
  const SeriesQuery by_gpu{At(0), At(60), SeriesQuery::By::kGpu, 360};
  const Json gpus = Read(by_gpu);
  EXPECT_EQ(gpus["step_s"], 10);
  EXPECT_EQ(gpus["by"], "gpu");
  ASSERT_EQ(gpus["series"].size(), 2u);
  EXPECT_EQ(gpus["series"][0]["key"], "gpu0");
  EXPECT_EQ(gpus["series"][0]["active_s"], Json::array({0.0, 4.0, 6.0, 0.0, 0.0, 0.0}));
  EXPECT_EQ(gpus["series"][1]["active_s"], Json::array({0.0, 5.0, 0.0, 0.0, 0.0, 0.0}));
  SeriesQuery query = by_gpu;
  query.by = SeriesQuery::By::kUser;
  const Json users = Read(query);
  EXPECT_EQ(users["series"][0]["key"], "1002");
  EXPECT_EQ(users["series"][1]["key"], "anna");
  EXPECT_DOUBLE_EQ(Sum(users["series"][1]["active_s"]), 10);
  query.by = SeriesQuery::By::kProject;
  const Json projects = Read(query);
  EXPECT_EQ(projects["series"][0]["key"], "");
  EXPECT_EQ(projects["series"][1]["key"], "vision");
}

TEST_F(ReadSeriesTest, BeforeTheLogNothingIsKnown) {
  std::ofstream(events_) << Line(35, {{"event", "daemon"}}) << SessionLine(35, 7, 1001, "")
                         << UsageLine(50, 7, 0, 4);
  const Json json = Read({At(0), At(60), SeriesQuery::By::kGpu, 360});
  EXPECT_EQ(json["complete_since"], UtcTime(At(35)));
  EXPECT_EQ(json["series"][0]["active_s"], Json::array({nullptr, nullptr, nullptr, 0.0, 4.0, 0.0}));
}

TEST_F(ReadSeriesTest, ManySecondsBecomeFewSteps) {
  std::ofstream(events_) << Line(0, {{"event", "daemon"}});
  EXPECT_EQ(Read({At(0), At(3600), SeriesQuery::By::kGpu, 360})["step_s"], 20);
  EXPECT_LE(Read({At(0), At(3600), SeriesQuery::By::kGpu, 50})["times"].size(), 50u);
  EXPECT_LE(Read({At(0), At(10800), SeriesQuery::By::kGpu, 1000000})["times"].size(), 720u);
}

TEST_F(ReadSeriesTest, DaysComeFromTheAccounts) {
  {
    AccountsWriter writer(Options());
    writer.Open(path_);
    std::vector<Usage> usages;
    for (int hour = 0; hour < 30; ++hour) {
      Usage usage = Held(Session(1), kMonday + int64_t{hour} * kHour, 600);
      usage.active_s = 300;
      usages.push_back(usage);
    }
    writer.Add(usages);
  }
  const Json json = Read({At(0), At(int64_t{36} * kHour), SeriesQuery::By::kUser, 360}, path_);
  EXPECT_EQ(json["step_s"], kHour);
  ASSERT_EQ(json["series"].size(), 1u);
  const Json& anna = json["series"][0];
  EXPECT_EQ(anna["key"], "anna");
  EXPECT_EQ(anna["active_s"].size(), 36u);
  EXPECT_DOUBLE_EQ(anna["active_s"][3], 300);
  EXPECT_DOUBLE_EQ(anna["active_s"][31], 0);
  EXPECT_DOUBLE_EQ(Sum(anna["active_s"]), 30 * 300);
  const Json gpus = Read({At(0), At(int64_t{36} * kHour), SeriesQuery::By::kGpu, 10}, path_);
  EXPECT_EQ(gpus["series"][0]["key"], "gpu0");
  EXPECT_LE(gpus["times"].size(), 10u);
  EXPECT_DOUBLE_EQ(Sum(gpus["series"][0]["active_s"]), 30 * 300);
}

TEST_F(ReadSeriesTest, WhatIsNotThereIsSaid) {
  const auto none = ReadSeries("", "", {At(0), At(60)}, Name);
  EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(ReadSeries(events_, "", {At(60), At(0)}, Name).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(ReadSeries(events_, "", {At(0), At(60)}, Name).error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace tandem::history
