#include "src/core/turns.h"

#include <gtest/gtest.h>

namespace tandem::core {
namespace {

TEST(SwitchCostTest, StartsFromTheBandwidthAndLearns) {
  SwitchCost cost(1e9);
  EXPECT_NEAR(cost.Estimate(Bytes(1000000000)).seconds(), 1.0, 0.01);
  for (int i = 0; i < 50; ++i) cost.Learn(Bytes(1000000000), Milliseconds(250));
  EXPECT_NEAR(cost.Estimate(Bytes(1000000000)).seconds(), 0.25, 0.01);
  EXPECT_NEAR(cost.Estimate(Bytes(500000000)).seconds(), 0.125, 0.01);
}

TEST(SwitchCostTest, OneAbsurdMeasurementDoesNotRuleTheDay) {
  SwitchCost cost(1e9);
  cost.Learn(Bytes(), Seconds(3600));  // somebody was stopped for an hour
  EXPECT_LT(cost.Estimate(Bytes()), Milliseconds(10));
}

TEST(RecentTest, OneLongPauseAmongShortOnesDoesNotCount) {
  Recent recent;
  EXPECT_FALSE(recent.Typical().has_value());
  for (int i = 0; i < 7; ++i) recent.Add(Milliseconds(5));
  recent.Add(Seconds(100));
  EXPECT_EQ(*recent.Typical(), Milliseconds(5));
  for (int i = 0; i < 8; ++i) recent.Add(Seconds(1));  // habits change
  EXPECT_EQ(*recent.Typical(), Seconds(1));
}

TEST(TurnRulesTest, ATurnIsTwentySwitchesLong) {
  const TurnRules rules;
  EXPECT_EQ(rules.Quantum(Milliseconds(100)), Seconds(2));
  EXPECT_EQ(rules.Quantum(Microseconds(10)), rules.floor);
}

TEST(TurnRulesTest, AFixedTurnDoesNotGrowWithTheCost) {
  TurnRules rules;
  for (const Duration turn : {Seconds(5), Duration()}) {
    rules.Fix(turn);
    EXPECT_EQ(rules.Quantum(Milliseconds(900)), turn);
    EXPECT_EQ(rules.Quantum(Duration()), turn);
  }
}

TEST(IdlePatienceTest, FollowsTheRule) {
  const Duration cost = Milliseconds(50);
  // Nothing to move: at once.
  EXPECT_EQ(IdlePatience(false, cost, std::nullopt, false), Duration());
  // A pause known to be long enough to pay for the way there and back: at once.
  EXPECT_EQ(IdlePatience(true, cost, Milliseconds(101), false), Duration());
  // Too short for both ways; long enough where the waiter's own pause pays the way back.
  EXPECT_EQ(IdlePatience(true, cost, Milliseconds(99), false), Milliseconds(100));
  EXPECT_EQ(IdlePatience(true, cost, Milliseconds(99), true), Duration());
  // Unknown, or shorter: once it has idled that long.
  EXPECT_EQ(IdlePatience(true, cost, Milliseconds(5), true), Milliseconds(50));
  EXPECT_EQ(IdlePatience(true, cost, std::nullopt, false), Milliseconds(100));
}

}  // namespace
}  // namespace tandem::core
