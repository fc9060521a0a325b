// What the policies come to for people who share a card. All draws come from fixed seeds: a failure
// is the same each time.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "src/sim/draws_test.h"
#include "src/sim/node.h"

namespace tandem::sim {
namespace {

constexpr Duration kDay = Seconds(kThorough ? 20'000 : 500);

struct Shared {
  double mean_wait_s = 0;  // of the people's bursts
  double p99_wait_s = 0;
  double trained = 0;  // share of the time that the trainers worked
};

// People with occasional cells of 2 s, and trainers that hardly pause. Each needs 60 % of the card;
// bringing that in takes a second.
Shared Share(const std::string& policy, int people, int trainers) {
  Timeline timeline;
  NodeConfig config;
  config.policy = policy;
  config.chunk = MiB(512);
  Node node(&timeline, config);
  const Bytes memory = Bytes(config.card.count * 6 / 10);
  std::vector<double> waits;
  Shared outcome;
  for (int user = 0; user < people; ++user) {
    const auto seed = static_cast<uint64_t>(user) * 2;
    Habits habits{Exponential(Seconds(120), seed), Exponential(Seconds(2), seed + 1), memory};
    node.Start(0, 1000 + static_cast<unsigned>(user), habits, [&](const Burst& burst) {
      waits.push_back((burst.started - burst.ready).seconds());
    });
  }
  for (int user = 0; user < trainers; ++user) {
    Habits habits{[] { return Milliseconds(5); }, [] { return Seconds(50); }, memory};
    node.Start(0, 2000 + static_cast<unsigned>(user), habits, [&](const Burst& burst) {
      outcome.trained += burst.work.seconds() / kDay.seconds();
    });
  }
  timeline.RunUntil(timeline.now() + kDay);
  std::sort(waits.begin(), waits.end());
  for (const double wait : waits) outcome.mean_wait_s += wait / static_cast<double>(waits.size());
  if (!waits.empty()) outcome.p99_wait_s = waits[waits.size() * 99 / 100];
  return outcome;
}

TEST(PolicySimulation, ShortBurstsWaitLessBesideATrainerAndItTrainsOn) {
  for (const int people : {1, 4, 16}) {
    const Shared turns = Share("round-robin", people, 1);
    const Shared interactive = Share("interactive", people, 1);
    if (!kThorough) return;
    EXPECT_LT(interactive.mean_wait_s, 0.7 * turns.mean_wait_s) << people;
    EXPECT_LT(interactive.p99_wait_s, turns.p99_wait_s) << people;
    EXPECT_GE(interactive.trained, turns.trained - 0.03) << people;
  }
}

TEST(PolicySimulation, SoTheyDoBesideTwoTrainersThatAlreadySpendWhatSwitchingMayCost) {
  const Shared turns = Share("round-robin", 4, 2);
  const Shared interactive = Share("interactive", 4, 2);
  if (!kThorough) return;
  EXPECT_LT(interactive.mean_wait_s, 0.7 * turns.mean_wait_s);
  EXPECT_LT(interactive.p99_wait_s, turns.p99_wait_s);
  EXPECT_GE(interactive.trained, turns.trained - 0.03);
}

TEST(PolicySimulation, AmongEqualsItMakesLittleDifference) {
  const Shared first_come = Share("fcfs", 16, 0);
  const Shared interactive = Share("interactive", 16, 0);
  if (!kThorough) return;
  EXPECT_LT(interactive.mean_wait_s, 1.05 * first_come.mean_wait_s);
}

TEST(PolicySimulation, TrainersAreNotStarvedByMorePeopleThanTheCardCanServe) {
  const Shared interactive = Share("interactive", 80, 1);
  if (!kThorough) return;
  EXPECT_GT(interactive.trained, 0.0);
}

struct Harvested {
  double work_ms = 0;    // of a step of production, where 8 are kernels
  double gap_share = 0;  // that the opportunistic program got of production's pauses of 12 ms
};

// Production beside an opportunistic program that has always something to do, on a card without
// priorities, with room for both.
Harvested Harvest(const std::string& policy) {
  constexpr Duration kTime = Seconds(kThorough ? 100 : 2), kBegin = Seconds(kThorough ? 20 : 0);
  Timeline timeline;
  NodeConfig config;
  config.policy = policy;
  Node node(&timeline, config);
  const Instant begin = timeline.now() + kBegin;
  Harvested outcome;
  int steps = 0;
  Habits production{[] { return Milliseconds(12); }, [] { return Milliseconds(8); }, GiB(10),
                    "production"};
  node.Start(0, 0, production, [&](const Burst& burst) {
    if (burst.ready < begin) return;
    ++steps;
    outcome.work_ms += (burst.ended - burst.ready).seconds() * 1e3;
  });
  Duration worked;
  Habits search{[] { return Duration(1000); }, [] { return Microseconds(300); }, GiB(10),
                "opportunistic"};
  node.Start(0, 1000, search, [&](const Burst& burst) {
    if (burst.ready >= begin) worked = worked + burst.work;
  });
  timeline.RunUntil(begin + kTime);
  outcome.work_ms /= steps;
  outcome.gap_share = worked.seconds() / (kTime.seconds() * 12 / 20);
  return outcome;
}

TEST(PolicySimulation, OpportunisticWorkHasGapsThatProductionHardlyLosesBy) {
  const Harvested without = Harvest("interactive");
  const Harvested with = Harvest("priority");
  if (!kThorough) return;
  EXPECT_GT(without.work_ms, 12);
  EXPECT_LT(with.work_ms, 8.4);  // the price of a pause is about what is tolerated
  EXPECT_GT(with.gap_share, 0.3);
}

TEST(PolicySimulation, UnderNvsharesRuleTheyWaitForTheEndOfThePause) {
  const Shared nvshare = Share("nvshare", 4, 1);
  const Shared interactive = Share("interactive", 4, 1);
  if (!kThorough) return;
  EXPECT_LT(interactive.mean_wait_s, 0.5 * nvshare.mean_wait_s);
  EXPECT_GE(interactive.trained, nvshare.trained);
}

}  // namespace
}  // namespace tandem::sim
