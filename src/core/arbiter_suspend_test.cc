// Suspended sessions: off the card even where no session waits, and back only when resumed.
#include "src/core/arbiter_test.h"

namespace tandem::core {
namespace {

class SuspendTest : public ArbiterTest {
 protected:
  void Suspend(SessionId id) { On(event::Suspended{id}); }
  void Resume(SessionId id) { On(event::Suspended{id, false}); }
};

TEST_F(SuspendTest, AHolderLosesLeaseAndBytesWithoutAnybodyWaiting) {
  Add(kA);
  Run(kA, MiB(60));
  Suspend(kA);
  EXPECT_EQ(Said<action::Revoke>(kA).epoch, epoch_[kA]);
  Release(kA);
  EXPECT_EQ(Said<action::Evict>(kA).target, Bytes());
  On(event::Evicted{kA, MiB(30), MiB(30)});
  EXPECT_TRUE(Silent<action::Evict>(kA));  // it is on its way
  On(event::Evicted{kA, Bytes(), MiB(30)});
  EXPECT_EQ(arbiter_.budget().charged(), Bytes());
}

TEST_F(SuspendTest, AHolderDoesNotFillItsQueueAnewWhileItIsToLeave) {
  Add(kA);
  Run(kA, MiB(60));
  Suspend(kA);
  EXPECT_TRUE(Said<action::SetContended>(kA).contended);
  On(event::Busy{kA, epoch_[kA]});
  EXPECT_TRUE(Silent<action::SetContended>(kA));
  Resume(kA);
  EXPECT_FALSE(Said<action::SetContended>(kA).contended);
}

// A kernel may outlast the longest deadline that a Revoke has for a waiter's sake.
TEST_F(SuspendTest, InTheEndEvenALongKernelIsWaitedFor) {
  Add(kA);
  Run(kA, MiB(60));
  Suspend(kA);
  Duration longest;
  for (int i = 0; i < 12; ++i) {
    On(event::Busy{kA, epoch_[kA]});
    Later(Seconds(2));
    longest = std::max(longest, Said<action::Revoke>(kA).deadline);
  }
  EXPECT_GT(longest, Seconds(1000));
  Resume(kA);
  On(event::Busy{kA, epoch_[kA]});
  Add(kB);
  On(event::Ready{kB, MiB(60)});
  Later(Seconds(100));
  EXPECT_LE(Said<action::Revoke>(kA).deadline, Seconds(64));
}

TEST_F(SuspendTest, WhatItAsksForWaitsUntilItIsResumed) {
  Add(kA);
  Suspend(kA);
  On(event::Ready{kA, MiB(60)});
  On(event::ContextWanted{kA});
  Later(Seconds(100));
  EXPECT_TRUE(Silent<action::Grant>(kA));
  EXPECT_TRUE(Silent<action::ContextReserved>(kA));
  EXPECT_TRUE(arbiter_.Waiting().empty());
  Resume(kA);
  EXPECT_EQ(Said<action::Grant>(kA).credit, MiB(60));
  EXPECT_TRUE(Said<action::ContextReserved>(kA).granted);
}

TEST_F(SuspendTest, WhatItAsksForIsRefusedWhereItIsNotToWait) {
  Add(kA);
  Suspend(kA);
  On(event::Ready{kA, MiB(60)});
  On(event::ContextWanted{kA});
  On(event::FixedWanted{kA, 7, MiB(10)});
  EXPECT_TRUE(Silent<action::FixedReserved>(kA));
  On(event::Suspended{kA, true, true});
  EXPECT_FALSE(Said<action::ContextReserved>(kA).granted);
  EXPECT_FALSE(Said<action::FixedReserved>(kA).granted);
  On(event::ContextWanted{kA});
  EXPECT_FALSE(Said<action::ContextReserved>(kA).granted);
  On(event::FixedWanted{kA, 8, MiB(10)});
  EXPECT_EQ(Said<action::FixedReserved>(kA).sequence, 8u);
  EXPECT_FALSE(Said<action::FixedReserved>(kA).granted);
  EXPECT_TRUE(Silent<action::Grant>(kA));
  Resume(kA);
  EXPECT_EQ(Said<action::Grant>(kA).credit, MiB(60));
  On(event::ContextWanted{kA});
  EXPECT_TRUE(Said<action::ContextReserved>(kA).granted);
}

TEST_F(SuspendTest, OthersDoNotNoticeThatItWaits) {
  Add(kA);
  Add(kB);
  Run(kB, MiB(60));
  On(event::Ready{kA, MiB(60)});
  EXPECT_TRUE(Said<action::SetContended>(kB).contended);
  Suspend(kA);
  EXPECT_FALSE(Said<action::SetContended>(kB).contended);
  EXPECT_FALSE(arbiter_.taking_turns());
  Later(Seconds(100));
  EXPECT_TRUE(Silent<action::Revoke>(kB));
  // It keeps its place before those who came after it.
  Add(kC);
  On(event::Ready{kC, MiB(60)});
  Resume(kA);
  EXPECT_EQ(arbiter_.Waiting().front().id, kA);
}

TEST_F(SuspendTest, AnIdleOneIsOnlyEvicted) {
  Add(kA);
  Run(kA, MiB(60));
  Release(kA);
  Suspend(kA);
  EXPECT_TRUE(Silent<action::Revoke>(kA));
  EXPECT_EQ(Said<action::Evict>(kA).target, Bytes());
}

// The same by its own word, until it asks for a lease.
TEST_F(SuspendTest, OneThatMayLeaveGoesAndComesBackWhenItAsks) {
  Add(kA);
  Run(kA, MiB(60));
  On(event::Leaving{kA});
  Said<action::Revoke>(kA);
  Release(kA);
  EXPECT_EQ(Said<action::Evict>(kA).target, Bytes());
  On(event::Evicted{kA, Bytes(), MiB(60)});
  On(event::Ready{kA, MiB(60)});
  EXPECT_EQ(Said<action::Grant>(kA).credit, MiB(60));
  EXPECT_TRUE(Silent<action::Revoke>(kA));
}

TEST_F(SuspendTest, OneThatWaitsOrWorksDoesNotLeave) {
  Add(kA);
  Add(kB);
  Run(kB, MiB(60));
  On(event::Ready{kA, MiB(60)});
  On(event::Leaving{kA});
  On(event::Leaving{kB});
  Said<action::Revoke>(kB);
  On(event::Busy{kB, epoch_[kB]});
  Later(Seconds(1));
  EXPECT_EQ(arbiter_.Waiting().front().id, kA);
  EXPECT_FALSE(arbiter_.sessions().at(kB).leaving);
}

TEST_F(SuspendTest, OneThatWaitsNoLongerHasNoWish) {
  Add(kA);
  Add(kB);
  Run(kB, MiB(60));
  On(event::Ready{kA, MiB(60)});
  EXPECT_TRUE(Said<action::SetContended>(kB).contended);
  On(event::NotReady{kA});
  EXPECT_FALSE(Said<action::SetContended>(kB).contended);
  EXPECT_TRUE(arbiter_.Waiting().empty());
  On(event::NotReady{kB});  // crossed with its grant
  EXPECT_TRUE(arbiter_.sessions().at(kB).holds());
}

TEST_F(SuspendTest, ABusyOneIsAskedAgain) {
  Add(kA);
  Run(kA, MiB(60));
  Suspend(kA);
  On(event::Busy{kA, epoch_[kA]});
  EXPECT_TRUE(Silent<action::Revoke>(kA));
  Later(Config().busy_backoff);
  Said<action::Revoke>(kA);
  Resume(kA);
  On(event::Busy{kA, epoch_[kA]});
  Later(Seconds(100));
  EXPECT_TRUE(Silent<action::Revoke>(kA));  // resumed, and no session waits for the card
}

TEST_F(SuspendTest, OneThatIsComingBackGoesAgainAndTheNextIsServed) {
  Add(kA);
  Add(kB);
  Add(kC);
  Run(kA, MiB(90));
  On(event::Ready{kB, MiB(90)});
  On(event::Ready{kC, MiB(90)});
  Later(arbiter_.Quantum());
  Release(kA);
  const Epoch epoch = Said<action::Grant>(kB).epoch;
  Suspend(kB);
  EXPECT_EQ(Said<action::Revoke>(kB).epoch, epoch);
  On(event::Released{kB, epoch});
  Said<action::Evict>(kB);
  EXPECT_FALSE(arbiter_.sessions().at(kC).phase == Phase::kAway);
}

TEST_F(SuspendTest, WhoeverIsRevokedForItIsFreeForOthers) {
  Add(kA);
  Add(kB);
  Run(kA, MiB(90));
  On(event::Ready{kB, MiB(90)});
  Later(arbiter_.Quantum());
  Said<action::Revoke>(kA);
  Suspend(kB);
  EXPECT_FALSE(arbiter_.claimant().has_value());
  Release(kA);
  EXPECT_TRUE(Silent<action::Grant>(kB));
  On(event::Ready{kA, MiB(90)});
  Said<action::Grant>(kA);
}

TEST_F(SuspendTest, OneThatIsStoppedIsAskedWhenItShowsItself) {
  Add(kA);
  Run(kA, MiB(60));
  Suspend(kA);
  Later(Seconds(10));
  EXPECT_TRUE(arbiter_.sessions().at(kA).stuck);
  EXPECT_TRUE(Silent<action::Revoke>(kA));
  Release(kA);
  EXPECT_EQ(Said<action::Evict>(kA).target, Bytes());
}

TEST_F(SuspendTest, AnUnknownOneIsIgnored) {
  Suspend(SessionId{99});
  EXPECT_TRUE(said_.empty());
}

}  // namespace
}  // namespace tandem::core
