#include "softgpu/card/device_clock.h"

#include <gtest/gtest.h>

#include <memory>

#include "softgpu/card/busy_time.h"
#include "softgpu/card/compute_turn.h"

namespace tandem::soft {
namespace {

std::unique_ptr<SharedPage> NewPage(bool model) {
  auto page = std::make_unique<SharedPage>();
  page->model_clock = model ? 1 : 0;
  return page;
}

TEST(DeviceClockTest, EnginesAreReservedOneAfterTheOther) {
  const auto page = NewPage(true);
  DeviceClock clock(page.get()), others(page.get());
  const Instant start(1'000'000);
  const Instant first = clock.Reserve(SharedEngine::kCompute, start, Milliseconds(2));
  EXPECT_EQ(first, start + Milliseconds(2));
  EXPECT_EQ(others.FreeAt(SharedEngine::kCompute, start), first);
  EXPECT_EQ(others.Reserve(SharedEngine::kCompute, start, Milliseconds(1)),
            first + Milliseconds(1));
  // Another engine is free, and one that was free for long begins when it is asked to.
  EXPECT_EQ(clock.Reserve(SharedEngine::kToHost, start, Milliseconds(1)), start + Milliseconds(1));
  const Instant late = first + Seconds(1);
  EXPECT_EQ(clock.Reserve(SharedEngine::kCompute, late, Milliseconds(1)), late + Milliseconds(1));
}

TEST(DeviceClockTest, WorkThatIsDoneLateHoldsTheClockUp) {
  const auto page = NewPage(true);
  DeviceClock clock(page.get());
  const Instant end = MonotonicNow() - Milliseconds(150);
  clock.Done(end);
  EXPECT_GE(page->clock_lag_ns.load(), Milliseconds(150).ns);
  const int64_t lag_ns = page->clock_lag_ns.load();
  clock.Done(MonotonicNow() + Seconds(3600));  // in time, by the clock as it is now
  EXPECT_EQ(page->clock_lag_ns.load(), lag_ns);
}

TEST(DeviceClockTest, AStoppedProcessHoldsTheClockUpForALittleOnly) {
  const auto page = NewPage(true);
  DeviceClock clock(page.get());
  clock.Done(MonotonicNow() - Seconds(3600));
  EXPECT_EQ(page->clock_lag_ns.load(), Milliseconds(200).ns);
}

TEST(DeviceClockTest, NeverGoesBackWithinAProcess) {
  const auto page = NewPage(true);
  DeviceClock clock(page.get());
  const Instant before = clock.Now();
  clock.Done(before - Milliseconds(100));
  EXPECT_GE(clock.Now(), before);
}

TEST(ComputeTurnTest, AHigherPriorityInterruptsAndIsNotInterrupted) {
  const auto page = NewPage(false);
  ComputeTurn low(page.get(), 0);
  page->slots[1].priority.store(5);
  low.Acquire();
  EXPECT_FALSE(low.ShouldYield());
  page->engines[0].waiting[0].fetch_or(2);
  EXPECT_TRUE(low.ShouldYield());
  low.Release();
  ComputeTurn high(page.get(), 1);
  high.Acquire();  // it was handed over
  EXPECT_TRUE(high.Owns());
  page->engines[0].waiting[0].fetch_or(1);
  high.Take();
  EXPECT_TRUE(high.Owns());
}

TEST(ComputeTurnTest, OfThoseWhoWaitTheHighestIsNext) {
  const auto page = NewPage(false);
  ComputeTurn turn(page.get(), 0);
  turn.Acquire();
  page->slots[70].priority.store(1);
  page->engines[0].waiting[0].fetch_or(2);
  page->engines[0].waiting[1].fetch_or(uint64_t{1} << 6);
  turn.Release();
  EXPECT_EQ(page->engines[0].owner.load() >> 56, 71u);
}

TEST(ComputeTurnTest, ByTheModelClockAQuantumIsWork) {
  const auto page = NewPage(true);
  ComputeTurn turn(page.get(), 0);
  turn.Acquire();
  page->engines[0].waiting[0].fetch_or(2);
  EXPECT_FALSE(turn.ShouldYield());
  turn.Spend(kQuantum);
  EXPECT_TRUE(turn.ShouldYield());
}

TEST(BusyTimeTest, IsOfTheLastSecond) {
  auto page = NewPage(false);
  Slot& slot = page->slots[3];
  const Instant now = Instant() + Seconds(1000);
  EXPECT_EQ(BusyPercent(slot, now), 0u);
  AddBusyTime(slot, Milliseconds(350), now);
  EXPECT_NEAR(BusyPercent(slot, now), 40, 1);  // of the seven eighths that are over
  EXPECT_NEAR(BusyPercent(slot, now + Milliseconds(124)), 35, 1);
  EXPECT_EQ(BusyPercent(slot, now + Seconds(1)), 0u);
  AddBusyTime(slot, Seconds(10), now + Seconds(20));
  EXPECT_EQ(BusyPercent(slot, now + Seconds(20)), 100u);
}

}  // namespace
}  // namespace tandem::soft
