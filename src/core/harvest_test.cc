#include "src/core/harvest.h"

#include <gtest/gtest.h>

#include <random>

namespace tandem::core {
namespace {

// Work of 8 ms and pauses of 12 ms on average, by turns, in which opportunistic work is under way
// whenever it may be, and what it then adds to the work.
class Loop {
 public:
  // Milliseconds, where a pause ends beside it, and beside the work itself.
  Loop(double at_once, double beside) : at_once_(at_once), beside_(beside) {}

  void MakePausesRandom() { random_pauses_ = true; }
  void SetLosses(double at_once, double beside) {
    at_once_ = at_once;
    beside_ = beside;
  }

  void Run(int cycles) {
    for (int i = 0; i < cycles; ++i) {
      Pause();
      harvest_.OnWork(now_);
      const bool in_work = harvest_.open();
      works_ += in_work ? 1 : 0;
      const double lost = (met_ ? at_once_ : 0) + (in_work ? beside_ : 0);
      lost_ms_ += lost;
      now_ = now_ + Ms(std::normal_distribution<>(8 + lost, 0.2)(random_));
      harvest_.OnPause(now_);
      harvest_.Update(now_);
    }
    cycles_ += cycles;
  }
  void Forget() { cycles_ = works_ = 0, lost_ms_ = had_ms_ = pause_ms_ = 0; }

  // The parts that were had, and the part of the time that was lost.
  double pauses() const { return had_ms_ / pause_ms_; }
  double works() const { return static_cast<double>(works_) / cycles_; }
  double lost() const { return lost_ms_ / cycles_ / 20; }
  Harvest& harvest() { return harvest_; }
  Instant now() const { return now_; }

 private:
  static Duration Ms(double ms) { return Duration(static_cast<int64_t>(ms * 1e6)); }

  void Pause() {
    const double ms = random_pauses_ ? std::exponential_distribution<>(1 / 12.0)(random_)
                                     : std::normal_distribution<>(12, 0.1)(random_);
    const Instant end = now_ + Ms(ms);
    pause_ms_ += ms;
    while (now_ < end) {
      const Instant next = std::min(end, harvest_.updates_at().value_or(end));
      if (harvest_.open()) had_ms_ += (next - now_).seconds() * 1e3;
      now_ = next;
      met_ = harvest_.open();
      harvest_.Update(now_);
    }
    met_ = harvest_.open();
  }

  double at_once_, beside_;
  bool random_pauses_ = false;
  std::mt19937_64 random_{1};
  Harvest harvest_;
  Instant now_ = Instant(1);
  bool met_ = false;  // the pause ended beside it
  int cycles_ = 0, works_ = 0;
  double lost_ms_ = 0, had_ms_ = 0, pause_ms_ = 0;
};

TEST(MomentsTest, MeanAndItsError) {
  Moments moments;
  EXPECT_EQ(moments.ErrorSquared(), 0);
  for (const double value : {2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0}) moments.Add(value);
  EXPECT_DOUBLE_EQ(moments.mean(), 5);
  EXPECT_DOUBLE_EQ(moments.ErrorSquared(), 32.0 / 7 / 8);
}

TEST(HarvestTest, WhatDisturbsNobodyGetsAllButNowAndThenACycleToCompareWith) {
  Loop loop(0, 0);
  loop.Run(1000);
  loop.Forget();
  loop.Run(1000);
  EXPECT_GT(loop.pauses(), 0.9);
  EXPECT_GT(loop.works(), 0.9);
  EXPECT_LT(loop.pauses(), 1);
}

TEST(HarvestTest, WhatDisturbsBesideWorkIsLeftThePauses) {
  Loop loop(0, 4);
  loop.Run(1000);
  loop.Forget();
  loop.Run(4000);
  EXPECT_GT(loop.pauses(), 0.8);
  EXPECT_LT(loop.works(), 0.1);
  EXPECT_LT(loop.lost(), 0.01);
}

TEST(HarvestTest, PausesThatAreAlikeItLeavesBeforeTheyEnd) {
  Loop loop(2, 4);
  loop.Run(1000);
  loop.Forget();
  loop.Run(4000);
  EXPECT_GT(loop.pauses(), 0.8);
  EXPECT_LT(loop.lost(), 0.01);
}

TEST(HarvestTest, OfOthersItHasTheBeginning) {
  Loop loop(4, 4);
  loop.MakePausesRandom();
  loop.Run(1000);
  loop.Forget();
  loop.Run(4000);
  EXPECT_GT(loop.pauses(), 0.02);
  EXPECT_LT(loop.lost(), 0.03);
}

TEST(HarvestTest, ItFollowsAsThingsChange) {
  Loop loop(2, 4);
  loop.MakePausesRandom();
  loop.Run(2000);
  loop.SetLosses(0, 0);
  loop.Run(2000);
  loop.Forget();
  loop.Run(1000);
  EXPECT_GT(loop.works(), 0.9);
  loop.SetLosses(2, 4);
  loop.Run(2000);
  loop.Forget();
  loop.Run(1000);
  EXPECT_LT(loop.works(), 0.05);
}

TEST(HarvestTest, ALongPauseIsItsAfterAMoment) {
  Loop loop(0, 0);
  loop.Run(100);
  Harvest& harvest = loop.harvest();
  while (harvest.open()) loop.Run(1);
  ASSERT_TRUE(harvest.updates_at().has_value());
  const Instant at = *harvest.updates_at();
  EXPECT_LE(at - loop.now(), Milliseconds(80));
  harvest.Update(at - Duration(1));
  EXPECT_FALSE(harvest.open());
  harvest.Update(at);
  EXPECT_TRUE(harvest.open());
  EXPECT_FALSE(harvest.updates_at().has_value());
}

}  // namespace
}  // namespace tandem::core
