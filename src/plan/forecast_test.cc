#include "src/plan/forecast.h"

#include <gtest/gtest.h>

namespace tandem::plan {
namespace {

// As the reference table of the design has it.
Team People(int users) {
  Team team;
  team.users = users;
  team.away_s = 3600;
  return team;
}

TEST(ForecastTest, AnswersTheThreeQuestions) {
  EXPECT_NEAR(ForecastSharing(People(10)).wait.mean_s, 28.8, 0.06);
  EXPECT_NEAR(ForecastSharing(People(10)).wait.p99_s, 201, 0.6);
  EXPECT_EQ(MostUsers(People(1), 120), 5);
  ASSERT_TRUE(Exclusive(People(2)).has_value());
  EXPECT_NEAR(Exclusive(People(2))->mean_s, 117, 3);
  // With as long a wait as two have who each get the GPU for themselves, sharing carries 18.
  EXPECT_LE(ForecastSharing(People(18)).wait.mean_s, Exclusive(People(2))->mean_s);
  EXPECT_GT(ForecastSharing(People(19)).wait.mean_s, Exclusive(People(2))->mean_s);
}

TEST(ForecastTest, MemoryThatDoesNotFitCostsASwitch) {
  Team team = People(4);
  team.card = GiB(80);
  team.memory = GiB(20);
  EXPECT_EQ(ForecastSharing(team).switch_s, 0);
  team.memory = GiB(40);  // of four there is room for two
  team.bus_bytes_per_s = 40.0 * GiB(1).count;
  EXPECT_NEAR(ForecastSharing(team).switch_s, 0.5, 1e-9);
  EXPECT_GT(ForecastSharing(team).wait.mean_s, ForecastSharing(People(4)).wait.mean_s);
  team.gpus = 2;
  EXPECT_EQ(ForecastSharing(team).switch_s, 0);
}

TEST(ForecastTest, WhereTheChainWouldBeTooLargeExclusiveUseHasNoAnswer) {
  EXPECT_FALSE(Exclusive(People(6)).has_value());
  Team team = People(2);
  team.gpus = 2;
  EXPECT_FALSE(Exclusive(team).has_value());
}

TEST(ForecastTest, TheMostUsersAreTheMost) {
  for (const double bound : {1.0, 30.0, 600.0}) {
    const int most = MostUsers(People(1), bound);
    ASSERT_GE(most, 1);
    EXPECT_LE(ForecastSharing(People(most)).wait.p99_s, bound);
    EXPECT_GT(ForecastSharing(People(most + 1)).wait.p99_s, bound);
  }
}

}  // namespace
}  // namespace tandem::plan
