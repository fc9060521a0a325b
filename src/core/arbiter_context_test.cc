// Scenes about contexts, which cannot be swapped: grants, their order, and refusals.
#include "src/core/arbiter_test.h"

namespace tandem::core {
namespace {

TEST_F(ArbiterTest, ContextsAboveTheReserveAreChargedAndPushIdleMemoryOut) {
  Add(kA);
  Add(kB);
  Run(kA, MiB(50));
  Run(kB, MiB(46));
  On(event::ContextWanted{kA});
  EXPECT_TRUE(Said<action::ContextReserved>(kA).granted);  // from the reserve
  EXPECT_EQ(arbiter_.budget().free(), MiB(4));
  On(event::ContextWanted{kB});
  EXPECT_TRUE(Silent<action::ContextReserved>(kB));
  Later(Seconds(1));  // busy holders are revoked for it only at the end of their turn
  On(event::Released{kA, epoch_[kA]});
  EXPECT_EQ(Said<action::Evict>(kA).target, MiB(46));
  On(event::Evicted{kA, MiB(46), MiB(4)});
  EXPECT_TRUE(Said<action::ContextReserved>(kB).granted);
  EXPECT_EQ(Record().to, kB);
  EXPECT_EQ(Record().from, std::vector<SessionId>{kA});
  EXPECT_EQ(Record().out, MiB(4));
  EXPECT_EQ(arbiter_.budget().fixed(), MiB(8));
  On(event::SessionGone{kA});
  EXPECT_EQ(arbiter_.budget().fixed(), Bytes());  // kB's moved into the reserve
}

TEST_F(ArbiterTest, NoContextThatWouldKeepSomebodyFromEverRunning) {
  Add(kA);
  Add(kB);
  On(event::ContextWanted{kA});
  On(event::Reserve{kA, 1, MiB(96)});
  EXPECT_TRUE(Said<action::Reserved>(kA).granted);
  On(event::ContextWanted{kB});
  EXPECT_TRUE(Silent<action::ContextReserved>(kB));
  On(event::Reserve{kA, 2, MiB(92)});
  EXPECT_TRUE(Said<action::ContextReserved>(kB).granted);
  On(event::Reserve{kA, 3, MiB(93)});
  EXPECT_FALSE(Said<action::Reserved>(kA).granted);
}

TEST_F(ArbiterTest, NoContextForWhichAnotherHasLeftNoRoomWhileItWasMade) {
  Add(kA);
  Add(kB);
  Run(kA, MiB(50));
  Run(kB, MiB(46));
  On(event::ContextWanted{kA});  // the reserve
  On(event::ContextWanted{kB});
  Later(Seconds(1));
  Release(kA);
  EXPECT_EQ(Said<action::Evict>(kA).target, MiB(46));
  On(event::Reserve{kA, 2, MiB(100)});
  EXPECT_TRUE(Said<action::Reserved>(kA).granted);
  On(event::Evicted{kA, MiB(46), MiB(4)});
  EXPECT_TRUE(Silent<action::ContextReserved>(kB));  // kA could never run again
  On(event::Reserve{kA, 3, MiB(50)});
  EXPECT_TRUE(Said<action::ContextReserved>(kB).granted);
}

TEST_F(ArbiterTest, NoContextForWhoseOwnMemoryIsInTheWay) {
  Add(kA);
  On(event::ContextWanted{kA});
  EXPECT_TRUE(Said<action::ContextReserved>(kA).granted);  // from the reserve
  On(event::Reserve{kA, 1, MiB(96)});
  EXPECT_TRUE(Said<action::Reserved>(kA).granted);
  On(event::ContextWanted{kA});
  EXPECT_FALSE(Said<action::ContextReserved>(kA).granted);
  On(event::Reserve{kA, 2, MiB(92)});
  On(event::ContextWanted{kA});
  EXPECT_TRUE(Said<action::ContextReserved>(kA).granted);
}

TEST_F(ArbiterTest, NoContextForWhoGrowsIntoItsPlaceWhileItWaits) {
  Add(kA);
  Add(kB);
  On(event::ContextWanted{kB});
  Run(kB, MiB(46));
  On(event::ContextWanted{kA});
  EXPECT_TRUE(Said<action::ContextReserved>(kA).granted);  // beside kB's memory
  On(event::ContextGone{kA});
  Run(kA, MiB(50));
  On(event::ContextWanted{kA});
  EXPECT_TRUE(Silent<action::ContextReserved>(kA));  // until a turn ends
  On(event::Reserve{kA, 1, MiB(95)});
  EXPECT_TRUE(Said<action::Reserved>(kA).granted);
  EXPECT_FALSE(Said<action::ContextReserved>(kA).granted);
  EXPECT_TRUE(arbiter_.Waiting().empty());
}

TEST_F(ArbiterTest, EveryContextAskedForIsAnswered) {
  Add(kA);
  Add(kB);
  On(event::ContextWanted{kB});        // the reserve
  On(event::Reserve{kB, 1, MiB(96)});  // as long as it has that, no context
  for (int i = 0; i < 3; ++i) On(event::ContextWanted{kA});
  EXPECT_TRUE(Silent<action::ContextReserved>(kA));
  On(event::Reserve{kB, 2, MiB(50)});
  EXPECT_EQ(arbiter_.sessions().at(kA).contexts, 3u);
  EXPECT_EQ(arbiter_.budget().fixed(), MiB(24));
}

TEST_F(ArbiterTest, ManyContextsAreAnsweredAtOnce) {
  Add(kA);
  Add(kB);
  On(event::ContextWanted{kB});        // the reserve
  On(event::Reserve{kB, 1, MiB(96)});  // as long as it has that, no context
  for (int i = 0; i < 12; ++i) On(event::ContextWanted{kA});
  EXPECT_TRUE(Silent<action::ContextReserved>(kA));
  On(event::Reserve{kB, 2, MiB(4)});
  EXPECT_EQ(arbiter_.sessions().at(kA).contexts, 12u);
  EXPECT_TRUE(arbiter_.Waiting().empty());
}

TEST_F(ArbiterTest, AContextThatNoLongerFitsBesideAnotherIsRefusedWithThatOnesAnswer) {
  Add(kA);
  Add(kB);
  On(event::ContextWanted{kB});  // the reserve
  On(event::Ready{kB, MiB(100)});
  epoch_[kB] = Said<action::Grant>(kB).epoch;
  On(event::Running{kB, epoch_[kB], {}});
  On(event::Reserve{kA, 1, MiB(90)});
  for (int i = 0; i < 2; ++i) On(event::ContextWanted{kA});
  EXPECT_TRUE(Silent<action::ContextReserved>(kA));  // until kB's turn ends
  Release(kB);
  On(event::Evicted{kB, MiB(92), MiB(8)});
  EXPECT_TRUE(Said<action::ContextReserved>(kA).granted);
  EXPECT_EQ(arbiter_.sessions().at(kA).contexts, 1u);
  EXPECT_EQ(arbiter_.sessions().at(kA).contexts_wanted.size(), 0u);
  EXPECT_TRUE(arbiter_.Waiting().empty());
}

TEST_F(ArbiterTest, NobodyWaitsForMoreContextsThanAProgramHasThreads) {
  Add(kA);
  On(event::Suspended{kA});  // what it asks for waits
  for (int i = 0; i < 1024; ++i) {
    On(event::ContextWanted{kA});
    ASSERT_TRUE(Silent<action::Breach>(kA)) << i;
  }
  On(event::ContextWanted{kA});
  Said<action::Breach>(kA);
  EXPECT_EQ(arbiter_.sessions().at(kA).contexts_wanted.size(), 1024u);
}

TEST_F(ArbiterTest, ContextsFromBeforeARestartAreChargedOnceThereIsRoom) {
  On(event::SessionAdded{kA, RunId{1}, MiB(100), MiB(96), MiB(96), 3, {}});
  EXPECT_EQ(arbiter_.budget().fixed(), MiB(4));  // two above the reserve cost 16
  On(event::Evicted{kA, MiB(60), {}});
  EXPECT_EQ(arbiter_.budget().fixed(), MiB(16));
}

}  // namespace
}  // namespace tandem::core
