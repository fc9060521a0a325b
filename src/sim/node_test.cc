// The node against what is known in closed form. All draws come from fixed seeds: a failure is the
// same each time.
#include "src/sim/node.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "src/plan/machine_repair.h"
#include "src/sim/draws_test.h"

namespace tandem::sim {
namespace {

constexpr Duration kBurst = Seconds(30);
constexpr Duration kThink = Seconds(450);
constexpr Duration kWarmUp = Seconds(kThorough ? 10'000 : 1'000);
constexpr Duration kLength = Seconds(kThorough ? 2'000'000 : 40'000);  // of all users together

// No holder is interrupted, and copies take no time.
NodeConfig FirstComeFirstServed(int gpus) {
  NodeConfig config;
  config.gpus = gpus;
  config.bus_bytes_per_second = 1e18;
  config.chunk = GiB(8);
  config.policy = "fcfs";
  return config;
}

struct Outcome {
  double mean_wait_s = 0;
  double utilisation = 0;
};

// Of `users` users for `length`, after a warm-up.
Outcome Simulate(int users, Duration length, uint64_t seed) {
  Timeline timeline;
  const NodeConfig config = FirstComeFirstServed(1);
  Node node(&timeline, config);
  const Instant warm = timeline.now() + kWarmUp;
  double waited_s = 0;
  uint64_t bursts = 0;
  for (int user = 0; user < users; ++user) {
    const uint64_t of_user = seed * 1000 + static_cast<uint64_t>(user);
    Habits habits{Exponential(kThink, 2 * of_user), Exponential(kBurst, 2 * of_user + 1),
                  Bytes(config.card.count * 6 / 10)};
    node.Start(0, 1000 + static_cast<unsigned>(user), habits, [&](const Burst& burst) {
      if (burst.ready < warm) return;
      waited_s += (burst.started - burst.ready).seconds();
      ++bursts;
    });
  }
  timeline.RunUntil(warm);
  const Duration busy = node.card(0).busy();
  timeline.RunUntil(warm + length);
  return {waited_s / static_cast<double>(bursts),
          (node.card(0).busy() - busy).seconds() / length.seconds()};
}

class NodeTest : public ::testing::TestWithParam<int> {};

// Of independent runs, the interval of their mean in which the true one lies with a probability of
// 99.9 % (Student's t with 9 degrees of freedom: 4.78).
TEST_P(NodeTest, UsersWaitAsLongAsTheClosedFormSays) {
  constexpr int kRuns = 10;
  constexpr double kStudent = 4.78;
  std::vector<double> waits, utilisations;
  for (uint64_t run = 1; run <= kRuns; ++run) {
    // About as many bursts whatever the number of users.
    const Duration length = kLength / GetParam();
    const Outcome outcome = Simulate(GetParam(), length, run);
    waits.push_back(outcome.mean_wait_s);
    utilisations.push_back(outcome.utilisation);
  }
  const plan::MachineRepair model(
      {.users = GetParam(), .gpus = 1, .burst_s = kBurst.seconds(), .think_s = kThink.seconds()});
  const auto expect_near = [&](const std::vector<double>& seen, double expected) {
    const double mean = std::accumulate(seen.begin(), seen.end(), 0.0) / kRuns;
    double squares = 0;
    for (const double one : seen) squares += (one - mean) * (one - mean);
    const double reach = kStudent * std::sqrt(squares / (kRuns - 1) / kRuns);
    EXPECT_NEAR(mean, expected, reach + 2e-3);  // a hand-over takes a millisecond
    if (kThorough) {
      EXPECT_LT(reach, 0.2 * expected);  // so that this says something
    }
  };
  expect_near(waits, model.MeanWait());
  expect_near(utilisations, model.Utilisation());
}

INSTANTIATE_TEST_SUITE_P(Users, NodeTest,
                         ::testing::ValuesIn(kThorough ? std::vector<int>{2, 5, 10, 20, 50}
                                                       : std::vector<int>{2, 5}));

// A lease that the last daemon granted is not taken for the next one's.
TEST(StoppedProgramTest, HearsInOrderWhatWasSaidWhileItWasStopped) {
  Timeline timeline;
  NodeConfig config;
  config.latency = Milliseconds(1);
  Node node(&timeline, config);
  const auto habits = [](Duration think, Bytes memory) {
    return Habits{[think] { return think; }, [] { return Milliseconds(100); }, memory};
  };
  const uint64_t stopped = node.Start(0, 1000, habits(Seconds(1), GiB(20)), [](const Burst&) {});
  while (!node.program(stopped).waiting_since().has_value()) ASSERT_TRUE(timeline.Step());
  node.Stop(stopped, Seconds(3));  // before its grant comes
  timeline.RunUntil(timeline.now() + Seconds(2));
  EXPECT_EQ(node.Resident(0), Bytes());
  node.Stop(stopped, Seconds(20));
  node.RestartDaemon(Milliseconds(1));
  node.Start(0, 1001, habits(Milliseconds(1), GiB(70)), [](const Burst&) {});
  for (int i = 0; i < 250; ++i) {
    timeline.RunUntil(timeline.now() + Milliseconds(100));
    ASSERT_LE(node.Resident(0), config.card + config.chunk) << i;
  }
}

}  // namespace
}  // namespace tandem::sim
