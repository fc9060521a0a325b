// What must hold whatever the sessions do: a swarm of random worlds in virtual time. A failure
// prints its seed; TANDEM_SEED=n runs that one alone.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "src/base/testing/rounds.h"
#include "src/core/world_test.h"

namespace tandem::core {
namespace {

// With fewer contexts outside the budget than a world has programs, room is made for some.
ArbiterConfig Config(uint32_t reserved = 8) {
  ArbiterConfig config;
  config.budget = MiB(256);
  config.chunk = config.spare = MiB(2);
  config.context = MiB(8);
  config.reserved = reserved;
  return config;
}

std::vector<uint64_t> Seeds(uint64_t count) {
  if (const char* seed = std::getenv("TANDEM_SEED"); seed != nullptr) {
    return {std::strtoull(seed, nullptr, 10)};
  }
  const uint64_t first = std::random_device()();
  std::vector<uint64_t> seeds;
  for (uint64_t i = 0; i < count; ++i) seeds.push_back(first + i);
  return seeds;
}

// Of those that soon serve every waiter, unless a holder works without end.
std::string RandomPolicy(World& world) {
  constexpr const char* kNames[] = {"fcfs", "round-robin", "interactive", "fair"};
  return kNames[static_cast<size_t>(world.Uniform() * std::size(kNames))];
}

Habits RandomHabits(World& world, bool honest) {
  Habits habits;
  habits.need = Bytes(MiB(2).count * (1 + static_cast<uint64_t>(world.Uniform() * 88)));
  habits.oversubscribes = world.Uniform() < 0.2;
  if (habits.oversubscribes) habits.need += MiB(200);
  habits.burst = Duration(1000000 + static_cast<int64_t>(world.Uniform() * 4e8));
  habits.pause = Duration(200000 + static_cast<int64_t>(world.Uniform() * 1e9));
  habits.random = true;
  habits.of_class = static_cast<Class>(static_cast<int>(world.Uniform() * kClasses));
  habits.reset = world.Uniform() < 0.5 ? 0.1 : 0;
  habits.array = world.Uniform() < 0.5 ? 0.2 : 0;
  if (!honest) {
    habits.busy = world.Uniform() * 0.3;
    habits.grow = habits.oversubscribes ? 0 : world.Uniform() * 0.3;
    habits.stop = world.Uniform() < 0.3 ? 0.01 : 0;
  }
  return habits;
}

Habits AnyHabits(World& world) {
  return RandomHabits(world, false);
}

// Of programs beside which there is no room for everything that cannot be swapped.
Habits LargeHabits(World& world) {
  Habits habits = RandomHabits(world, false);
  habits.array = 0.3;
  if (habits.oversubscribes || world.Uniform() < 0.5) return habits;
  habits.need = Bytes(MiB(2).count * (88 + static_cast<uint64_t>(world.Uniform() * 20)));
  habits.grow = 0;
  return habits;
}

// All sessions come to rest, give lent bytes back, and leave nothing charged when they end.
void ExpectToComeToRest(World& world) {
  world.CalmDown();
  world.RunFor(Seconds(200));
  const Arbiter& arbiter = world.arbiter();
  EXPECT_TRUE(world.quiet());
  EXPECT_TRUE(arbiter.Waiting().empty());
  EXPECT_LE(arbiter.budget().charged(), arbiter.budget().total());
  for (const uint64_t id : world.ids()) world.Kill(id);
  world.RunFor(Seconds(1));
  EXPECT_EQ(arbiter.budget().charged(), Bytes());
}

// Of programs that say what they are about to do.
Habits TalkativeHabits(World& world) {
  Habits habits = RandomHabits(world, false);
  habits.say = world.Uniform() * 0.5;
  return habits;
}

// Programs start, die and are suspended, and the policy sometimes changes.
void Trouble(World& world, const std::function<std::string(World&)>& policy,
             const std::function<Habits(World&)>& habits, int events = 200) {
  world.SetPolicy(policy(world));
  while (world.ids().size() < 4) world.Start(habits(world));
  for (int i = 0; i < events && !::testing::Test::HasFailure(); ++i) {
    world.RunFor(Duration(static_cast<int64_t>(world.Uniform() * 6e8)));
    const std::vector<uint64_t> ids = world.ids();
    if (world.Uniform() < 0.1 && ids.size() < 8) world.Start(habits(world));
    if (world.Uniform() < 0.08 && ids.size() > 1) {
      world.Kill(ids[static_cast<size_t>(world.Uniform() * static_cast<double>(ids.size()))]);
    }
    if (world.Uniform() < 0.02) world.SetPolicy(policy(world));
    if (world.Uniform() < 0.2) {
      const std::vector<uint64_t> left = world.ids();
      const double at = world.Uniform() * static_cast<double>(left.size());
      world.Suspend(left[static_cast<size_t>(at)], world.Uniform() < 0.4);
    }
  }
}

TEST(ArbiterPropertyTest, HoldsItsInvariantsWhateverSessionsDo) {
  bool lent = false;
  for (const uint64_t seed : Seeds(Rounds(20))) {
    SCOPED_TRACE("TANDEM_SEED=" + std::to_string(seed));
    World world(Config(3), seed);
    Trouble(world, RandomPolicy, AnyHabits);
    if (::testing::Test::HasFailure()) return;
    ExpectToComeToRest(world);
    // A minute for a session with long bursts, and as long again until its turn has come.
    EXPECT_LT(world.longest_wait(), Seconds(120));
    EXPECT_EQ(world.refused(), 0u);  // there is room for what each needs, beside arrays
    lent = lent || world.lent();
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_TRUE(lent);
}

// The world takes it that there is room to grow.
Habits ConstantHabits(World& world) {
  Habits habits = RandomHabits(world, false);
  habits.grow = 0;
  return habits;
}

// Other programs take memory of the card and give it back.
TEST(ArbiterPropertyTest, SoItDoesWhereTheBudgetFallsAndRises) {
  for (const uint64_t seed : Seeds(Rounds(20))) {
    SCOPED_TRACE("TANDEM_SEED=" + std::to_string(seed));
    const ArbiterConfig config = Config(3);
    World world(config, seed);
    for (int i = 0; i < 10 && !::testing::Test::HasFailure(); ++i) {
      const double part = 0.2 + world.Uniform();
      const double bytes = static_cast<double>(config.budget.count) * std::min(part, 1.0);
      world.SetBudget(Bytes(static_cast<uint64_t>(bytes)));
      Trouble(world, RandomPolicy, ConstantHabits, 20);
    }
    world.SetBudget(config.budget);
    world.RunFor(Seconds(1));
    EXPECT_EQ(world.arbiter().budget().total(), config.budget);
    ExpectToComeToRest(world);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(ArbiterPropertyTest, SoItDoesWhereProgramsDeclareBurstsGiveUpWaitingAndLeave) {
  for (const uint64_t seed : Seeds(Rounds(20))) {
    SCOPED_TRACE("TANDEM_SEED=" + std::to_string(seed));
    World world(Config(3), seed);
    Trouble(world, RandomPolicy, TalkativeHabits);
    if (::testing::Test::HasFailure()) return;
    ExpectToComeToRest(world);
    EXPECT_LT(world.longest_wait(), Seconds(120));
    EXPECT_EQ(world.refused(), 0u);
    if (::testing::Test::HasFailure()) return;
  }
}

// There some may wait for ever, and none of them once the rule is another one.
TEST(ArbiterPropertyTest, SoItDoesUnderPriorities) {
  for (const uint64_t seed : Seeds(Rounds(20))) {
    SCOPED_TRACE("TANDEM_SEED=" + std::to_string(seed));
    World world(Config(3), seed);
    const auto policy = [](World& any) {
      return any.Uniform() < 0.8 ? "priority" : RandomPolicy(any);
    };
    Trouble(world, policy, AnyHabits);
    if (::testing::Test::HasFailure()) return;
    world.SetPolicy("round-robin");
    ExpectToComeToRest(world);
    if (::testing::Test::HasFailure()) return;
  }
}

// Suspended programs come back to a card on which others have taken what cannot be swapped.
TEST(ArbiterPropertyTest, SoItDoesWhereThereIsNoRoomForAllThatCannotBeSwapped) {
  uint64_t refused = 0;
  for (const uint64_t seed : Seeds(Rounds(20))) {
    SCOPED_TRACE("TANDEM_SEED=" + std::to_string(seed));
    ArbiterConfig config = Config(3);
    config.fixed_wait = Milliseconds(500);
    World world(config, seed);
    Trouble(world, RandomPolicy, LargeHabits);
    refused += world.refused();
    if (::testing::Test::HasFailure()) return;
    ExpectToComeToRest(world);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(refused, 0u);
}

TEST(ArbiterPropertyTest, HonestSessionsMoveNoMoreThanIsLackedAndAllProgress) {
  for (const uint64_t seed : Seeds(Rounds(20))) {
    SCOPED_TRACE("TANDEM_SEED=" + std::to_string(seed));
    World world(Config(3), seed);
    world.SetPolicy("round-robin");
    for (int i = 0; i < 5; ++i) world.Start(RandomHabits(world, true));
    world.RunFor(Seconds(120));
    for (const uint64_t id : world.ids()) EXPECT_GT(world.worked(id), Duration()) << id;
    for (const Handover& record : world.handovers()) {
      EXPECT_LE(record.out, SaturatingSubtract(record.lacked, record.free) + MiB(2));
    }
    ExpectToComeToRest(world);
    // Four others may have their turns first, of 20 switches each. The whole budget goes out and in
    // within 70 ms, so that is 4 × 21 × 70 ms ≈ 6 s. The rest is for estimates above the true cost.
    EXPECT_LT(world.longest_wait(), Seconds(20));
    EXPECT_EQ(world.refused(), 0u);
    if (::testing::Test::HasFailure()) return;
  }
}

// Two trainers beyond the card, steps of 100 ms with pauses of 5 ms, a switch of 50 ms: the pauses
// are no reason to switch, so turns last as long as the quantum says.
TEST(ArbiterPropertyTest, ShortPausesDoNotTriggerSwitches) {
  const Bytes need = MiB(200);
  // 144 MiB go out and come in during 50 ms.
  World world(Config(), 1, static_cast<double>(MiB(144).count) / 0.05);
  world.Start({.need = need});
  world.Start({.need = need});
  world.RunFor(Seconds(10));  // learn
  const size_t before = world.handovers().size();
  world.RunFor(Seconds(60));
  const size_t handovers = world.handovers().size() - before;
  EXPECT_GE(handovers, 10u);
  EXPECT_LE(handovers, 60u);  // 20 × 50 ms each, plus the switch itself
  const double worked = (world.worked(1) + world.worked(2)).seconds();
  EXPECT_GT(worked, 0.85 * 70);  // 100 of 105 ms, less 5 % for switching
}

TEST(ArbiterPropertyTest, SessionsThatFitNeverLeave) {
  World world(Config(), 1);
  for (int i = 0; i < 4; ++i) world.Start({.need = MiB(64)});
  world.RunFor(Seconds(30));
  for (const Handover& record : world.handovers()) EXPECT_TRUE(record.from.empty());
  for (const uint64_t id : world.ids()) EXPECT_GT(world.worked(id).seconds(), 28.0);
}

}  // namespace
}  // namespace tandem::core
