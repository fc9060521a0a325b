#include "src/cli/top/model.h"

#include <gmock/gmock.h>

#include "src/base/json.h"
#include "src/cli/top/top_test.h"

namespace tandem::cli::top {
namespace {

using ::testing::DoubleEq;
using ::testing::Eq;
using ::testing::Optional;

using ModelTest = TopTest;

TEST_F(ModelTest, RatesNeedTwoAnswers) {
  TakeTwo(10, 1);
  EXPECT_EQ(model_.OfGpu(0).active, std::nullopt);
  EXPECT_EQ(model_.rows().at(0).rates.handovers_per_minute, std::nullopt);
  TakeTwo(12, 2.5);
  EXPECT_THAT(model_.OfGpu(0).active, Optional(DoubleEq(0.75)));
  EXPECT_THAT(model_.rows().at(0).rates.active, Optional(DoubleEq(0.75)));
  EXPECT_THAT(model_.rows().at(1).rates.active, Optional(DoubleEq(0)));
}

TEST_F(ModelTest, UtilisationIsOfTheLastInterval) {
  TakeTwo(10, 0);
  TakeTwo(11, 1);
  TakeTwo(12, 1.25);
  EXPECT_THAT(model_.OfGpu(0).active, Optional(DoubleEq(0.25)));
}

TEST_F(ModelTest, HandoversAreOfTheLastMinute) {
  for (int i = 0; i <= 100; ++i) {
    Take(i, Json::array({Gpu(0, 0, static_cast<uint64_t>(i < 50 ? 0 : 2 * (i - 49)))}),
         Json::array());
  }
  // Of 60 s, the last 51 have two each.
  EXPECT_THAT(model_.OfGpu(0).handovers_per_minute, Optional(DoubleEq(102)));
}

TEST_F(ModelTest, AnotherDaemonBeginsAnew) {
  TakeTwo(100, 50);
  Take(101, Json::array({Gpu(0, 0.5)}), Json::array(), Json::array(), 43);
  EXPECT_EQ(model_.OfGpu(0).active, std::nullopt);
  Take(102, Json::array({Gpu(0, 0.5)}), Json::array(), Json::array(), 43);
  EXPECT_THAT(model_.OfGpu(0).active, Optional(DoubleEq(0)));
}

TEST_F(ModelTest, ANewSessionHasNoRatesYet) {
  Take(1, Json::array({Gpu(0)}), Json::array({Session(3, "a")}));
  Take(2, Json::array({Gpu(0)}), Json::array({Session(3, "a"), Session(4, "b", 70)}));
  EXPECT_EQ(model_.rows().at(1).rates.active, std::nullopt);
  EXPECT_THAT(model_.rows().at(0).rates.active, Optional(DoubleEq(0)));
}

TEST_F(ModelTest, TheHistoryIsOfAMinuteAndKnowsWhatItHasNotSeen) {
  for (int i = 0; i <= 30; ++i) TakeTwo(100 + i, i < 20 ? i : 20 + (i - 20) * 0.5);
  const auto history = model_.History(0, 6);
  ASSERT_EQ(history.size(), 6u);
  EXPECT_THAT(history, ::testing::ElementsAre(Eq(std::nullopt), Eq(std::nullopt), Eq(std::nullopt),
                                              Optional(DoubleEq(1)), Optional(DoubleEq(1)),
                                              Optional(DoubleEq(0.5))));
  EXPECT_EQ(model_.History(7, 2), std::vector<std::optional<double>>(2));
}

TEST_F(ModelTest, WhatIsNoAnswerChangesNothing) {
  TakeTwo(10, 1);
  EXPECT_FALSE(model_.Take("[", "{}").ok());
  EXPECT_EQ(model_.rows().size(), 2u);
  ASSERT_TRUE(model_.Take("{\"gpus\":7,\"pid\":\"x\"}", "{\"sessions\":[7,null]}").ok());
  EXPECT_EQ(model_.rows().size(), 2u);
}

TEST_F(ModelTest, TheJsonHasTheAnswersAndTheRates) {
  TakeTwo(10, 1);
  TakeTwo(12, 2);
  const Json json = model_.ToJson();
  EXPECT_EQ(json["gpus"][0]["utilisation"], 0.5);
  EXPECT_EQ(json["sessions"][0]["utilisation"], 0.5);
  EXPECT_EQ(json["sessions"][0]["name"], "mnist");
  EXPECT_EQ(json["pid"], 42);
  model_.Lose("gone");
  EXPECT_EQ(JsonText(model_.ToJson()), R"({"gpus":[],"pid":null,"runs":[],"sessions":[]})");
}

}  // namespace
}  // namespace tandem::cli::top
