#include "src/core/budget.h"

#include <gtest/gtest.h>

#include "src/core/limits.h"

namespace tandem::core {
namespace {

constexpr SessionId kA{1};
constexpr SessionId kB{2};

TEST(BudgetTest, CountsWhatIsCharged) {
  Budget budget(MiB(100));
  budget.Recharge({}, MiB(60));
  budget.SetFixed(MiB(8));
  EXPECT_EQ(budget.free(), MiB(32));
  budget.Recharge(MiB(60), MiB(20));
  budget.Recharge({}, MiB(72));
  EXPECT_EQ(budget.free(), Bytes());
  budget.SetTotal(MiB(110));
  EXPECT_EQ(budget.free(), MiB(10));
}

TEST(BudgetDeathTest, AbortsBeforeItPromisesMoreThanThereIs) {
  Budget budget(MiB(100));
  budget.Recharge({}, MiB(60));
  EXPECT_DEATH(budget.Recharge({}, MiB(41)), "");
  EXPECT_DEATH(budget.Recharge({}, Bytes(~0ull)), "");
  EXPECT_DEATH(budget.SetFixed(MiB(41)), "");
  EXPECT_DEATH(budget.SetTotal(MiB(59)), "");
}

TEST(BudgetTest, LendsNoMoreThanIsComingAndTheSpare) {
  Budget budget(MiB(100), MiB(2));
  budget.Recharge({}, MiB(100));
  EXPECT_EQ(budget.free(), Bytes());
  EXPECT_EQ(budget.Lendable(MiB(1)), MiB(1));
  EXPECT_EQ(budget.Lendable(MiB(50)), MiB(2));
  budget.Recharge({}, MiB(2));
  EXPECT_EQ(budget.free(), Bytes());
  EXPECT_EQ(budget.Lendable(MiB(50)), Bytes());
  budget.Recharge(MiB(100), MiB(95));
  EXPECT_EQ(budget.free(), MiB(3));
}

TEST(RunLimitsTest, HoldForAllSessionsOfARunTogether) {
  RunLimits limits;
  limits.Add(kA, RunId{7}, MiB(100), Bytes());
  limits.Add(kB, RunId{7}, MiB(500), Bytes());  // a later session cannot raise it
  EXPECT_TRUE(limits.Reserve(kA, MiB(60)));
  EXPECT_FALSE(limits.Reserve(kB, MiB(41)));
  EXPECT_TRUE(limits.Reserve(kB, MiB(40)));
  EXPECT_FALSE(limits.Reserve(kB, Bytes(~0ull)));
  EXPECT_TRUE(limits.Reserve(kA, MiB(10)));
  EXPECT_EQ(limits.run_used(kB), MiB(50));
  limits.Remove(kB);
  EXPECT_TRUE(limits.Reserve(kA, MiB(100)));
}

TEST(RunLimitsTest, ARunThatIsAboveItsLimitMayShrinkButNotGrow) {
  RunLimits limits;
  limits.Add(kA, RunId{7}, MiB(100), MiB(150));
  EXPECT_FALSE(limits.Reserve(kA, MiB(151)));
  EXPECT_TRUE(limits.Reserve(kA, MiB(120)));
  EXPECT_FALSE(limits.Reserve(kA, MiB(121)));
}

}  // namespace
}  // namespace tandem::core
