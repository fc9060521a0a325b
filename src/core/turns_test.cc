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

int64_t InMicroseconds(const Pauses& pauses, Duration price) {
  return pauses.Patience(price).ns / 1000;
}

TEST(PausesTest, OfUnknownPausesWaitsAsLongAsTheyCostToTake) {
  EXPECT_EQ(Pauses().Patience(Milliseconds(20)), Milliseconds(20));
  EXPECT_EQ(PausesOf(64, Milliseconds(5)).Patience(Milliseconds(20)), Milliseconds(20));
}

TEST(PausesTest, OneThatWasAlwaysLongIsTakenAtOnce) {
  // But for a moment, until as many pauses were seen as are kept.
  EXPECT_EQ(InMicroseconds(PausesOf(1, Milliseconds(21)), Milliseconds(20)), 1767);
  EXPECT_EQ(InMicroseconds(PausesOf(16, Milliseconds(21)), Milliseconds(20)), 441);
  EXPECT_EQ(PausesOf(64, Milliseconds(21)).Patience(Milliseconds(20)), Duration());
}

TEST(PausesTest, ShortOnesAreWaitedOutAndLongOnesAmongThemTaken) {
  Pauses pauses = PausesOf(56, Microseconds(300));
  for (int i = 0; i < 8; ++i) pauses.Add(Milliseconds(100));
  EXPECT_EQ(InMicroseconds(pauses, Milliseconds(20)), 866);  // sqrt(20 ms * 0.3 ms / 8)
}

// As between the steps of a trainer on a GPU whose switch takes long. Twice the longest was
// exceeded by chance once in a few hundred, and each time cost a switch there and back.
TEST(PausesTest, OneAFewTimesLongerThanAllBeforeIsWaitedOutWhereASwitchIsDear) {
  Pauses pauses = PausesOf(63, Milliseconds(9));
  pauses.Add(Milliseconds(2500));
  EXPECT_EQ(InMicroseconds(pauses, Milliseconds(1400)), 112249);
}

// Twice 4 ms is the best, and waits for those of 7 ms, too: not for twice as long as they are.
TEST(PausesTest, NeverWaitsForLongerThanThePrice) {
  Pauses pauses = PausesOf(30, Milliseconds(4));
  for (int i = 0; i < 10; ++i) pauses.Add(Milliseconds(7));
  for (int i = 0; i < 24; ++i) pauses.Add(Milliseconds(100));
  EXPECT_EQ(pauses.Patience(Milliseconds(10)), Milliseconds(10));
}

TEST(PausesTest, ForAFewShortOnesNoLongOneIsWaitedFor) {
  Pauses pauses = PausesOf(1, Milliseconds(15));
  for (int i = 0; i < 8; ++i) pauses.Add(Milliseconds(100));
  // 15 ms and more spent on each of the eight would cost more than one switch that is not worth it.
  EXPECT_EQ(InMicroseconds(pauses, Milliseconds(20)), 589);
}

TEST(PausesTest, OnlyTheLatestCount) {
  Pauses pauses = PausesOf(64, Milliseconds(100));
  for (int i = 0; i < 64; ++i) pauses.Add(Milliseconds(5));
  EXPECT_EQ(pauses.Patience(Milliseconds(20)), Milliseconds(20));
}

TEST(PausesTest, WaitsForWhatWouldHaveCostTheLeastAndSomewhatLonger) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const Duration price = Microseconds(40);
  for (int round = 0; round < 200; ++round) {
    Pauses pauses;
    std::vector<Duration> seen(1 + random() % 64);
    for (Duration& pause : seen) pauses.Add(pause = Microseconds(1 + random() % 100));
    if (seen.size() < 64) seen.push_back(price / 128);
    std::sort(seen.begin(), seen.end());
    const auto cost = [&](Duration patience) {
      Duration sum;
      for (const Duration pause : seen) {
        sum = sum + (pause <= patience ? pause : patience + price);
      }
      return sum;
    };
    Duration best, least = cost(Duration());
    for (const Duration pause : seen) {
      if (pause * 2 < price && cost(pause * 2) <= least) least = cost(best = pause * 2);
    }
    if (cost(price) <= least) best = price;
    const auto longer = std::upper_bound(seen.begin(), seen.end(), best);
    if (best != Duration() && best != price && longer != seen.end()) {
      const Duration longest = *std::prev(longer);
      const double late = static_cast<double>(seen.end() - longer);
      const double beyond = std::sqrt(price.seconds() * longest.seconds() / late);
      best = std::max(Duration(static_cast<int64_t>(beyond * 1e9)), longest * 2);
      best = std::min(best, price);  // a pause of more than half the price may end in time, too
    }
    EXPECT_LE(pauses.Patience(price), price);
    EXPECT_EQ(pauses.Patience(price), best);
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
  allowance.Spend(Seconds(2), now);  // a turn's end does not wait for the allowance
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
