#include "src/sim/card.h"

#include <gtest/gtest.h>

namespace tandem::sim {
namespace {

class CardTest : public ::testing::Test {
 protected:
  Timeline::Call Note(Instant* when) {
    return [this, when] { *when = timeline_.now(); };
  }

  Timeline timeline_;
  const Instant begin_ = timeline_.now();
  Card card_{&timeline_, 1e9};
};

TEST_F(CardTest, CopiesOfOneWayFollowEachOtherAndBothWaysGoAtOnce) {
  Instant first, second, other;
  card_.Copy(Card::Way::kIn, Bytes(1'000'000), Note(&first));
  card_.Copy(Card::Way::kIn, Bytes(2'000'000), Note(&second));
  card_.Copy(Card::Way::kOut, Bytes(1'000'000), Note(&other));
  timeline_.RunUntil(begin_ + Seconds(1));
  EXPECT_EQ(first - begin_, Milliseconds(1));
  EXPECT_EQ(second - begin_, Milliseconds(3));
  EXPECT_EQ(other - begin_, Milliseconds(1));
}

TEST_F(CardTest, TheEngineIsDividedAmongThoseWhoWork) {
  Instant longer, shorter;
  card_.Run(Milliseconds(30), Note(&longer));
  timeline_.RunUntil(begin_ + Milliseconds(10));
  card_.Run(Milliseconds(10), Note(&shorter));  // both at half the speed for 20 ms
  timeline_.RunUntil(begin_ + Seconds(1));
  EXPECT_EQ(shorter - begin_, Milliseconds(30));
  EXPECT_EQ(longer - begin_, Milliseconds(40));
  EXPECT_EQ(card_.busy(), Milliseconds(40));
}

TEST_F(CardTest, WhatIsInterruptedIsLeft) {
  Instant ended, other;
  const uint64_t work = card_.Run(Milliseconds(30), Note(&ended));
  card_.Run(Milliseconds(30), Note(&other));
  timeline_.RunUntil(begin_ + Milliseconds(20));
  EXPECT_EQ(card_.Interrupt(work), Milliseconds(20));
  timeline_.RunUntil(begin_ + Seconds(1));
  EXPECT_EQ(ended, Instant());
  EXPECT_EQ(other - begin_, Milliseconds(40));
  EXPECT_EQ(card_.Interrupt(work), Duration());
}

}  // namespace
}  // namespace tandem::sim
