#include "src/shim/link/shortage.h"

#include <gtest/gtest.h>

#include <thread>

#include "src/shim/testing/fake_daemon.h"

namespace tandem::shim {
namespace {

class ShortageTest : public testing::Test {
 protected:
  ShortageTest() {
    EXPECT_TRUE(link_.Register(Bytes()).ok());
    daemon_.Expect<wire::Register>();
  }

  void RefuseUntilItAsks() {
    for (int i = 0; i < 3; ++i) shortage_.OnRefused(now_);
  }
  void AwaitTaken(Bytes bytes) {
    const Instant deadline = MonotonicNow() + Seconds(20);
    while (link_.used() != bytes && MonotonicNow() < deadline) {
      EXPECT_TRUE(link_.Receive().ok());
      std::this_thread::yield();
    }
    EXPECT_EQ(link_.used(), bytes);
    shortage_.Step(now_);  // takes note of it
  }

  Instant now_ = Instant() + Seconds(100);
  FakeDaemon daemon_{MiB(64), MiB(64), MiB(4)};
  DaemonLink link_{Identity{"test", 0, "GPU-0", "me"}};
  Shortage shortage_{&link_};
};

TEST_F(ShortageTest, TwiceAsMuchLeavesEachTimeUntilTheCardHasEnough) {
  daemon_.GrantFixed(MiB(64));
  RefuseUntilItAsks();
  AwaitTaken(MiB(2));
  for (const Bytes more : {MiB(4), MiB(8), MiB(16)}) {
    shortage_.OnRefused(now_);
    AwaitTaken(more);
  }
  shortage_.OnArrived();
  shortage_.OnRefused(now_);
  shortage_.OnRefused(now_);  // passes by itself
  shortage_.Step(now_ + Seconds(9));
  daemon_.AwaitFixed(MiB(16));
  shortage_.Step(now_ + Seconds(11));
  daemon_.AwaitFixed(Bytes());
}

TEST_F(ShortageTest, WhatComesTooLateGoesBackAtOnce) {
  RefuseUntilItAsks();
  const auto wanted = daemon_.Expect<wire::FixedWanted>();
  shortage_.OnArrived();
  daemon_.Send(wire::FixedReserved{wanted.sequence, 1});
  AwaitTaken(MiB(2));
  shortage_.Step(now_);
  EXPECT_EQ(Bytes(daemon_.Expect<wire::FixedGone>().bytes), MiB(2));
}

TEST_F(ShortageTest, OneQuestionAtATimeAndAgainWhereTheAnswerIsNo) {
  RefuseUntilItAsks();
  const auto first = daemon_.Expect<wire::FixedWanted>();
  shortage_.OnRefused(now_);  // not answered yet
  daemon_.Send(wire::FixedReserved{first.sequence, 0});
  daemon_.Send(wire::Credit{1});  // comes after it
  Bytes credit;
  while (credit == Bytes()) {
    EXPECT_TRUE(link_.Receive().ok());
    link_.With([&](client::Lease& lease) { credit = lease.credit(); });
  }
  shortage_.OnRefused(now_);
  const auto second = daemon_.Expect<wire::FixedWanted>();
  EXPECT_EQ(second.bytes, first.bytes);
  EXPECT_NE(second.sequence, first.sequence);
}

}  // namespace
}  // namespace tandem::shim
