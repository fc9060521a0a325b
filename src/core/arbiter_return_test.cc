// What sessions bring that were there before the daemon.
#include "src/core/arbiter_test.h"

namespace tandem::core {
namespace {

TEST_F(ArbiterTest, ARestartedDaemonChargesWhatSessionsStillHave) {
  Add(kA, MiB(70));
  Add(kB, MiB(50));  // more than can be true beside A
  EXPECT_EQ(Said<action::Evict>(kB).target, MiB(30));
  EXPECT_EQ(arbiter_.budget().free(), Bytes());
  On(event::Ready{kB, MiB(50)});
  EXPECT_TRUE(Silent<action::Grant>(kB));
  On(event::Evicted{kB, MiB(30), MiB(20)});
  EXPECT_EQ(Said<action::Grant>(kB).credit, MiB(30));
  EXPECT_EQ(Said<action::Evict>(kA).target, MiB(50));
}

TEST_F(ArbiterTest, WhatASessionBringsIsBookedBeforeAnybodyIsServed) {
  On(event::SessionAdded{kB, RunId{2}, MiB(200), MiB(120), {}, 0, {}});
  On(event::Ready{kB, MiB(120)});  // more than the budget as far as it is known
  EXPECT_TRUE(Silent<action::Grant>(kB));
  On(event::SessionAdded{kA, RunId{1}, MiB(200), MiB(60), MiB(60), 0, {}, MiB(160)});
  EXPECT_EQ(Said<action::Grant>(kB).credit, MiB(100));
  EXPECT_EQ(arbiter_.ChargeOf(kA), MiB(60));
  EXPECT_EQ(Said<action::Evict>(kA).target, MiB(40));
}

TEST_F(ArbiterTest, WhoeverGivesUpItsExcessBitByBitIsNotStuck) {
  Add(kA, MiB(70));
  Add(kB, MiB(50));
  for (uint64_t resident = 50; resident > 30; resident -= 2) {
    Later(arbiter_.config().silence - Milliseconds(1));
    On(event::Evicted{kB, MiB(resident), {}});
    EXPECT_FALSE(arbiter_.sessions().at(kB).stuck);
  }
}

TEST_F(ArbiterTest, WhoeverCannotGiveUpItsExcessIsServedWithIt) {
  Add(kA, MiB(70));
  Add(kB, MiB(50));
  On(event::Busy{kB, 0});
  Later(arbiter_.config().silence * 10);
  EXPECT_FALSE(arbiter_.sessions().at(kB).stuck);
  On(event::Ready{kB, MiB(60)});
  const Epoch epoch = Said<action::Grant>(kB).epoch;
  EXPECT_EQ(Said<action::Grant>(kB).credit, MiB(30));
  EXPECT_EQ(Said<action::Evict>(kA).target, MiB(40));
  On(event::Evicted{kA, MiB(60), MiB(10)});
  EXPECT_EQ(Said<action::Credit>(kB).credit, MiB(40));
  On(event::Evicted{kA, MiB(40), MiB(20)});
  EXPECT_EQ(Said<action::Credit>(kB).credit, MiB(60));
  On(event::Running{kB, epoch, {}});
  EXPECT_EQ(arbiter_.sessions().at(kB).excess, Bytes());
  On(event::Evicted{kB, MiB(50), {}});  // like any other session from now on
  EXPECT_EQ(arbiter_.ChargeOf(kB), MiB(50));
}

TEST_F(ArbiterTest, WhoeverCannotLeaveDoesNotHoldUpTheRest) {
  Add(kA, MiB(60));
  Add(kB);
  Add(kC);
  On(event::Ready{kB, MiB(70)});
  EXPECT_EQ(Said<action::Evict>(kA).target, MiB(30));
  On(event::Ready{kC, MiB(40)});
  On(event::Busy{kA, 0});
  const Epoch epoch = Said<action::Revoke>(kB).epoch;  // it does not fit beside what stays
  EXPECT_EQ(arbiter_.ChargeOf(kA), MiB(60));
  On(event::Released{kB, epoch});
  EXPECT_EQ(Said<action::Evict>(kB).target, Bytes());
  EXPECT_TRUE(Silent<action::Evict>(kA));
  On(event::Evicted{kB, {}, {}});
  EXPECT_EQ(Said<action::Credit>(kC).credit, MiB(40));
}

TEST_F(ArbiterTest, WhoeverCouldNotLeaveAndThenDoesIsAskedAgain) {
  Add(kA, MiB(60));
  Add(kB);
  On(event::Ready{kB, MiB(70)});
  EXPECT_EQ(Said<action::Evict>(kA).target, MiB(30));
  On(event::Busy{kA, 0});
  On(event::Released{kB, arbiter_.sessions().at(kB).epoch});
  On(event::Ready{kB, MiB(70)});
  EXPECT_TRUE(Silent<action::Grant>(kB));
  On(event::Evicted{kA, MiB(30), MiB(30)});  // its work has ended after all
  EXPECT_EQ(Said<action::Grant>(kB).credit, MiB(70));
}

TEST_F(ArbiterTest, WhoeverCouldNotLeaveIsLikeAnybodyElseOnceItGaveTheLeaseBack) {
  Add(kA, MiB(70));
  Add(kB, MiB(50));
  On(event::Busy{kB, 0});
  On(event::Ready{kB, MiB(40)});  // it has freed some and not reported it
  On(event::Evicted{kA, MiB(60), MiB(10)});
  const Epoch epoch = arbiter_.sessions().at(kB).epoch;
  On(event::Running{kB, epoch, {}});
  On(event::Reserve{kA, 1, MiB(70)});
  On(event::Ready{kA, MiB(70)});
  Later(Seconds(2));
  EXPECT_EQ(Said<action::Revoke>(kB).epoch, epoch);
  On(event::Released{kB, epoch});
  On(event::Evicted{kB, MiB(40), {}});
  On(event::Evicted{kB, MiB(30), MiB(10)});
  EXPECT_EQ(arbiter_.sessions().at(kA).credit, MiB(70));
}

TEST_F(ArbiterTest, WhoeverCouldNotLeaveIsSuspendedWhileItRuns) {
  Add(kA, MiB(70));
  Add(kB, MiB(50));
  On(event::Busy{kB, 0});
  On(event::Ready{kB, MiB(40)});
  On(event::Evicted{kA, MiB(60), MiB(10)});
  const Epoch epoch = arbiter_.sessions().at(kB).epoch;
  On(event::Running{kB, epoch, {}});
  On(event::Suspended{kB, true});
  EXPECT_EQ(Said<action::Revoke>(kB).epoch, epoch);
}

}  // namespace
}  // namespace tandem::core
