#include "src/plan/markov.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "src/plan/machine_repair.h"

namespace tandem::plan {
namespace {

constexpr Rates kRates = {1.0 / 3600, 1.0 / 7200, 1.0 / 300, 1.0 / 30, 1.0 / 600};

// A state is valid if each user that is ready holds the GPU or queues once, and no user queues
// while the GPU is free. There are 2^N + 3N Σ_k C(N−1, k) k! 2^(N−1−k) such states.
std::vector<State> ValidStates(int users) {
  const auto count = static_cast<size_t>(users);
  std::vector<State> states;
  size_t combinations = 1;
  for (size_t user = 0; user < count; ++user) combinations *= 3;
  for (size_t number = 0; number < combinations; ++number) {
    State state;
    for (size_t user = 0, left = number; user < count; ++user, left /= 3) {
      state.users.push_back(static_cast<User>(left % 3));
    }
    for (size_t holder = 0; holder <= count; ++holder) {
      state.holder = static_cast<uint8_t>(holder);
      state.queue.clear();
      for (size_t user = 0; user < count; ++user) {
        if (state.users[user] == User::kReady && user + 1 != holder) {
          state.queue.push_back(static_cast<uint8_t>(user));
        }
      }
      if (holder == 0 && !state.queue.empty()) continue;
      do {
        states.push_back(state);
      } while (std::next_permutation(state.queue.begin(), state.queue.end()));
    }
  }
  return states;
}

TEST(ValidStatesTest, AsManyAsTheFormulaSays) {
  const size_t counts[] = {5, 22, 98, 472, 2552};
  for (int users = 1; users <= 5; ++users) {
    EXPECT_EQ(ValidStates(users).size(), counts[users - 1]);
  }
}

TEST(ChainTest, ReachesOnlyValidStates) {
  const std::vector<State> valid = ValidStates(3);
  for (const Release release : {Release::kAtJobEnd, Release::kWhenIdle, Release::kDetached}) {
    const Chain chain(3, release, kRates);
    const auto is_valid = [&](const State& state) {
      return std::find(valid.begin(), valid.end(), state) != valid.end();
    };
    EXPECT_TRUE(std::all_of(chain.states().begin(), chain.states().end(), is_valid));
  }
}

// The table of the design: of 22 states of two users, by rule.
TEST(ChainTest, ReachableAndRecurrentStatesOfTwoUsers) {
  struct Row {
    Release release;
    size_t reachable, recurrent;
  };
  for (const Row& row : {Row{Release::kAtJobEnd, 10, 10}, Row{Release::kAtDeparture, 16, 16},
                         Row{Release::kWhenIdle, 22, 22}, Row{Release::kWhenAsleep, 22, 22},
                         Row{Release::kOnDemand, 22, 18}, Row{Release::kDetached, 22, 22}}) {
    const Chain chain(2, row.release, kRates);
    EXPECT_EQ(chain.states().size(), row.reachable) << static_cast<int>(row.release);
    const auto classes = chain.RecurrentClasses();
    ASSERT_EQ(classes.size(), 1u);
    EXPECT_EQ(classes.front().size(), row.recurrent) << static_cast<int>(row.release);
  }
  const Chain never(2, Release::kNever, kRates);
  EXPECT_EQ(never.states().size(), 22u);
  EXPECT_GT(never.RecurrentClasses().size(), 1u);
}

TEST(ChainTest, SharingIsTheMachineRepairModel) {
  for (int users = 1; users <= 5; ++users) {
    const Chain chain(users, Release::kAtJobEnd, kRates);
    const MachineRepair closed({users, 1, 30, ThinkSeconds(300, 3600, 7200)});
    const std::vector<double> share = chain.Stationary();
    EXPECT_NEAR(std::accumulate(share.begin(), share.end(), 0.0), 1, 1e-9);
    EXPECT_NEAR(chain.MeanWait(), closed.MeanWait(), 1e-3) << users;
    EXPECT_NEAR(chain.WaitPercentile(0.99), closed.WaitPercentile(0.99), 0.01) << users;
  }
}

// The reference table of the design, from a simulation: exclusive use, culled after 10 minutes.
TEST(ChainTest, ExclusiveUseWithAnIdleTimeout) {
  struct Row {
    int users;
    double mean, p99;
  };
  for (const Row& row : {Row{2, 117, 1894}, Row{4, 490, 4067}, Row{5, 719, 5075}}) {
    const Chain chain(row.users, Release::kWhenIdle, kRates);
    EXPECT_NEAR(chain.MeanWait(), row.mean, 0.02 * row.mean) << row.users;
    EXPECT_NEAR(chain.WaitPercentile(0.99), row.p99, 0.03 * row.p99) << row.users;
  }
}

}  // namespace
}  // namespace tandem::plan
