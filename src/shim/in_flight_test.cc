#include "src/shim/in_flight.h"

#include <gtest/gtest.h>

#include "src/base/bytes.h"
#include "src/shim/fake_driver.h"

namespace tandem::shim {
namespace {

constexpr Duration kWindow = Milliseconds(10);

class InFlightTest : public testing::Test {
 protected:
  // How many are let through one after the other, `most` at most.
  uint64_t Submit(uint64_t most = 10000) {
    uint64_t admitted = 0;
    while (admitted < most && queue_.Admit(&events_, nullptr, kWindow, now_)) ++admitted;
    return admitted;
  }
  void AllDoneAfter(Duration time) {
    driver_.HoldEvents(false);
    now_ = now_ + time;
  }
  // Fills the queue, all of it done after `time`, and what is held back then asks again.
  void Round(Duration time) {
    driver_.HoldEvents(true);
    Submit();
    AllDoneAfter(time);
    Submit(1);
    driver_.HoldEvents(true);
  }

  FakeDriver driver_{MiB(8).count};
  EventPool events_{&driver_.table()};
  InFlight queue_{driver_.context()};
  Instant now_ = Instant{} + Seconds(1);
};

TEST_F(InFlightTest, HoldsBackWhileTheWindowIsFull) {
  driver_.HoldEvents(true);
  const uint64_t most = queue_.limit();
  EXPECT_EQ(Submit(), most);
  EXPECT_FALSE(queue_.Admit(&events_, nullptr, kWindow, now_));
  AllDoneAfter(Milliseconds(1));
  EXPECT_TRUE(queue_.Admit(&events_, nullptr, kWindow, now_));
}

TEST_F(InFlightTest, QuickWorkGetsAWiderWindowUpToABound) {
  const uint64_t before = queue_.limit();
  Round(Milliseconds(1));
  EXPECT_EQ(queue_.limit(), before * 2);
  for (int i = 0; i < 20; ++i) Round(Microseconds(100));
  EXPECT_EQ(queue_.limit(), 1024u);
}

TEST_F(InFlightTest, SlowWorkGetsANarrowerOneDownToASingleSubmission) {
  const uint64_t before = queue_.limit();
  Round(Milliseconds(13));
  EXPECT_EQ(queue_.limit(), before * 10 / 13);
  for (int i = 0; i < 10; ++i) Round(Seconds(2));
  EXPECT_EQ(queue_.limit(), 1u);
  driver_.HoldEvents(false);
  EXPECT_EQ(Submit(100), 100u);  // one after the other is all right
}

TEST_F(InFlightTest, WorkNobodyWaitsForTeachesNothing) {
  const uint64_t before = queue_.limit();
  for (int i = 0; i < 100; ++i) {
    now_ = now_ + Seconds(1);
    EXPECT_EQ(Submit(1), 1u);
  }
  EXPECT_EQ(queue_.limit(), before);
}

}  // namespace
}  // namespace tandem::shim
