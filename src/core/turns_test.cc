#include "src/core/turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace tandem::core {
namespace {

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

Pauses PausesOf(int count, Duration pause) {
  Pauses pauses;
  for (int i = 0; i < count; ++i) pauses.Add(pause);
  return pauses;
}

TEST(PausesTest, OfUnknownPausesWaitsAsLongAsTheyCostToTake) {
  EXPECT_EQ(Pauses().Patience(Milliseconds(20)), Milliseconds(20));
  EXPECT_EQ(PausesOf(64, Milliseconds(5)).Patience(Milliseconds(20)), Milliseconds(20));
}

TEST(PausesTest, OneThatWasAlwaysLongIsTakenAtOnce) {
  // But for a moment, as long as not so many were seen.
  EXPECT_EQ(PausesOf(1, Milliseconds(21)).Patience(Milliseconds(20)), Milliseconds(20) / 64);
  EXPECT_EQ(PausesOf(63, Milliseconds(21)).Patience(Milliseconds(20)), Milliseconds(20) / 64);
  EXPECT_EQ(PausesOf(64, Milliseconds(21)).Patience(Milliseconds(20)), Duration());
}

TEST(PausesTest, ShortOnesAreWaitedOutAndLongOnesAmongThemTaken) {
  Pauses pauses = PausesOf(56, Microseconds(300));
  for (int i = 0; i < 8; ++i) pauses.Add(Milliseconds(100));
  EXPECT_EQ(pauses.Patience(Milliseconds(20)), Microseconds(600));
}

TEST(PausesTest, ForAFewShortOnesNoLongOneIsWaitedFor) {
  Pauses pauses = PausesOf(1, Milliseconds(15));
  for (int i = 0; i < 8; ++i) pauses.Add(Milliseconds(100));
  // 15 ms and more spent on each of the eight would cost more than one switch that is not worth it.
  EXPECT_EQ(pauses.Patience(Milliseconds(20)), Milliseconds(20) / 64);
}

TEST(PausesTest, OnlyTheLatestCount) {
  Pauses pauses = PausesOf(64, Milliseconds(100));
  for (int i = 0; i < 64; ++i) pauses.Add(Milliseconds(5));
  EXPECT_EQ(pauses.Patience(Milliseconds(20)), Milliseconds(20));
}

TEST(PausesTest, NoOtherPatienceThatItMayHaveWouldHaveCostLess) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const Duration price = Microseconds(40);
  for (int round = 0; round < 200; ++round) {
    Pauses pauses;
    std::vector<Duration> seen(1 + random() % 64);
    for (Duration& pause : seen) pauses.Add(pause = Microseconds(1 + random() % 100));
    if (seen.size() < 64) seen.push_back(price / 128);
    const auto cost = [&](Duration patience) {
      Duration sum;
      for (const Duration pause : seen) {
        sum = sum + (pause <= patience ? pause : patience + price);
      }
      return sum;
    };
    const Duration found = cost(pauses.Patience(price));
    EXPECT_LE(found, std::min(cost(Duration()), cost(price)));
    for (const Duration pause : seen) EXPECT_LE(found, cost(std::min(pause * 2, price)));
  }
}

TEST(SwitchAllowanceTest, WhatIsSpentComesBackAtTheRateOfTheRules) {
  SwitchAllowance allowance(20);
  Instant now;
  allowance.Start(now);
  EXPECT_EQ(allowance.AffordableAt(Seconds(3), now), now + Seconds(60));  // it begins with nothing
  now = now + Seconds(60);
  allowance.Start(now);  // it has already
  EXPECT_EQ(allowance.AffordableAt(Seconds(3), now), now);
  allowance.Spend(Seconds(2), now);
  EXPECT_EQ(allowance.AffordableAt(Seconds(1), now), now);
  EXPECT_EQ(allowance.AffordableAt(Seconds(2), now), now + Seconds(20));
  now = now + Seconds(10);
  EXPECT_EQ(allowance.AffordableAt(Seconds(2), now), now + Seconds(10));
  allowance.Spend(Seconds(2), now);  // a turn's end asks nobody
  EXPECT_EQ(allowance.AffordableAt(Duration(), now), now + Seconds(10));
  EXPECT_EQ(allowance.AffordableAt(Milliseconds(1), now), now + Seconds(10) + Milliseconds(20));
  now = now + Seconds(1'000'000);
  EXPECT_EQ(allowance.AffordableAt(Seconds(3), now), now);
  EXPECT_EQ(allowance.AffordableAt(Seconds(100), now), now);  // there was time for one such
  allowance.Spend(Seconds(100), now);
  EXPECT_EQ(allowance.AffordableAt(Seconds(100), now), now);  // and for the way back
  allowance.Spend(Seconds(100), now);
  EXPECT_EQ(allowance.AffordableAt(Seconds(100), now), now + Seconds(2000));
}

TEST(IdlePatienceTest, FollowsTheRule) {
  const Duration cost = Milliseconds(50);
  const Pauses unknown;
  EXPECT_EQ(IdlePatience(false, cost, unknown, false), Duration());  // nothing to move: at once
  EXPECT_EQ(IdlePatience(true, cost, unknown, false), Milliseconds(100));
  EXPECT_EQ(IdlePatience(true, cost, unknown, true), Milliseconds(50));
  // Too short for both ways; long enough where the waiter's own pause pays the way back.
  EXPECT_EQ(IdlePatience(true, cost, PausesOf(8, Milliseconds(99)), false), Milliseconds(100));
  EXPECT_EQ(IdlePatience(true, cost, PausesOf(64, Milliseconds(99)), true), Duration());
}

}  // namespace
}  // namespace tandem::core
