#include "src/shim/gate/in_flight.h"

#include <gtest/gtest.h>

#include "src/base/bytes.h"
#include "src/shim/testing/fake_driver.h"

namespace tandem::shim {
namespace {

constexpr Duration kWindow = Milliseconds(10);

class InFlightTest : public testing::Test {
 protected:
  // How many are let through one after the other, `most` at most.
  uint64_t Submit(uint64_t most = 10000) {
    uint64_t admitted = 0;
    while (admitted < most && queue_.Admit(&events_, nullptr, kWindow)) ++admitted;
    return admitted;
  }
  // Submits `most`, or as many as there is room for. Then all of them are done, and one more comes.
  void Burst(uint64_t most = 10000) {
    driver_.HoldEvents(true);
    Submit(most);
    driver_.HoldEvents(false);
    Submit(1);
  }
  // What stands between two events takes so long.
  void EachTakes(float milliseconds) { driver_.RunKernels(milliseconds); }

  FakeDriver driver_{MiB(8).count};
  EventPool events_{&driver_.table(), EventPool::Kind::kTimed};
  InFlight queue_{driver_.context()};
};

TEST_F(InFlightTest, HoldsBackWhileTheWindowIsFull) {
  EachTakes(2.5F);  // four of them fill the window
  driver_.HoldEvents(true);
  const uint64_t most = queue_.limit();
  EXPECT_EQ(Submit(), most);
  EXPECT_FALSE(queue_.Admit(&events_, nullptr, kWindow));
  driver_.HoldEvents(false);
  EXPECT_TRUE(queue_.Admit(&events_, nullptr, kWindow));
  EXPECT_EQ(queue_.limit(), most);
}

TEST_F(InFlightTest, QuickWorkGetsAWiderWindowUpToABound) {
  const uint64_t before = queue_.limit();
  EachTakes(0.1F);
  Burst();
  EXPECT_EQ(queue_.limit(), before * 2 * 2 * 2);  // four events
  for (int i = 0; i < 5; ++i) Burst();
  EXPECT_EQ(queue_.limit(), 1024u);
}

TEST_F(InFlightTest, SlowWorkGetsANarrowerOneDownToASingleSubmission) {
  EachTakes(4);
  Burst();
  EXPECT_EQ(queue_.limit(), 2u * 10 / 4);  // two between its events
  EachTakes(2000);
  for (int i = 0; i < 3; ++i) Burst();
  EXPECT_EQ(queue_.limit(), 1u);
  EXPECT_EQ(Submit(100), 100u);  // one after the other is all right
}

TEST_F(InFlightTest, BurstsThatNeverFillTheWindowAreMeasuredToo) {
  EachTakes(0.1F);
  for (int i = 0; i < 10; ++i) Burst();
  ASSERT_EQ(queue_.limit(), 1024u);
  EachTakes(40);  // sixteen
  for (int i = 0; i < 10; ++i) Burst(44);
  EXPECT_LE(queue_.limit(), 4u);
}

TEST_F(InFlightTest, WhatLiesBetweenLeasesTeachesNothing) {
  EachTakes(2.5F);
  Burst();
  const uint64_t before = queue_.limit();
  queue_.ReturnEvents(&events_);
  EachTakes(1000);
  driver_.HoldEvents(true);
  Submit(before / 4 + 1);  // one event
  driver_.HoldEvents(false);
  Submit(1);
  EXPECT_EQ(queue_.limit(), before);
}

}  // namespace
}  // namespace tandem::shim
