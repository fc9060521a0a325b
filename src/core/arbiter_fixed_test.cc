// Memory that cannot be swapped and is no context.
#include "src/core/arbiter_test.h"

namespace tandem::core {
namespace {

class FixedTest : public ArbiterTest {
 protected:
  void Want(SessionId id, Bytes bytes, uint64_t sequence = 1) {
    On(event::FixedWanted{id, sequence, bytes});
  }
  bool Granted(SessionId id) { return Said<action::FixedReserved>(id).granted; }
};

TEST_F(FixedTest, IsChargedAndCountsForTheLimitUntilItIsGone) {
  Add(kA);
  On(event::Reserve{kA, 1, MiB(50)});
  Want(kA, MiB(30));
  EXPECT_TRUE(Granted(kA));
  EXPECT_EQ(arbiter_.budget().charged(), MiB(30));
  EXPECT_EQ(arbiter_.limits().run_used(kA), MiB(80));
  On(event::Reserve{kA, 2, MiB(71)});
  EXPECT_FALSE(Said<action::Reserved>(kA).granted);
  Want(kA, MiB(21), 7);
  EXPECT_FALSE(Granted(kA));
  EXPECT_EQ(Said<action::FixedReserved>(kA).sequence, 7u);
  On(event::FixedGone{kA, MiB(10)});
  EXPECT_EQ(arbiter_.limits().run_used(kA), MiB(70));
  On(event::SessionGone{kA});
  EXPECT_EQ(arbiter_.budget().charged(), Bytes());
}

TEST_F(FixedTest, OthersGiveUpBytesForIt) {
  Add(kA);
  Add(kB);
  Run(kA, MiB(80));
  Want(kB, MiB(20), 1);
  EXPECT_TRUE(Granted(kB));
  On(event::FixedGone{kB, MiB(20)});
  Release(kA);
  On(event::LimitSet{RunId{kA.value}, MiB(100)});
  On(event::Reserve{kA, 2, MiB(60)});  // it has freed some, and not given back the credit
  Want(kB, MiB(40), 2);
  EXPECT_TRUE(Silent<action::FixedReserved>(kB));
  EXPECT_EQ(Said<action::Evict>(kA).target, MiB(60));
  On(event::Evicted{kA, MiB(60), MiB(20)});
  EXPECT_TRUE(Granted(kB));
  EXPECT_EQ(arbiter_.budget().free(), Bytes());
}

TEST_F(FixedTest, ItsOwnSpareCreditIsEnough) {
  Add(kA);
  Run(kA, MiB(80));
  On(event::Reserve{kA, 2, MiB(30)});  // it has freed some, and not given back the credit
  Want(kA, MiB(40));
  EXPECT_TRUE(Silent<action::FixedReserved>(kA));
  EXPECT_TRUE(Said<action::SetContended>(kA).contended);
  On(event::Evicted{kA, MiB(30), {}});
  EXPECT_TRUE(Granted(kA));
  EXPECT_FALSE(Said<action::SetContended>(kA).contended);
}

TEST_F(FixedTest, NobodyIsBarredForEver) {
  Add(kA);
  Add(kB);
  On(event::Reserve{kA, 1, MiB(90)});
  Want(kB, MiB(20));
  EXPECT_TRUE(Silent<action::FixedReserved>(kB));  // kA could never run again
  On(event::Reserve{kA, 2, MiB(80)});
  EXPECT_TRUE(Granted(kB));
  On(event::Reserve{kA, 3, MiB(81)});
  EXPECT_FALSE(Said<action::Reserved>(kA).granted);
}

TEST_F(FixedTest, WhatCannotFitBesideItsOwnIsRefused) {
  Add(kA);
  Add(kB);
  Want(kB, MiB(30));
  EXPECT_TRUE(Granted(kB));
  On(event::Reserve{kA, 1, MiB(60)});
  Want(kA, MiB(11));  // within its limit of 100, but not beside 60 of its own and 30 of kB's
  EXPECT_FALSE(Granted(kA));
  EXPECT_EQ(arbiter_.limits().run_used(kA), MiB(60));
}

TEST_F(FixedTest, SeveralAreAnsweredAsRoomComes) {
  Add(kA);
  Add(kB);
  On(event::Reserve{kA, 1, MiB(90)});
  Want(kB, MiB(20), 1);
  Want(kB, MiB(10), 2);
  On(event::Reserve{kA, 2, MiB(70)});
  std::vector<uint64_t> granted;
  for (const Action& action : said_) {
    const auto* answer = std::get_if<action::FixedReserved>(&action);
    if (answer != nullptr && answer->granted) granted.push_back(answer->sequence);
  }
  EXPECT_EQ(granted, (std::vector<uint64_t>{1, 2}));
}

TEST_F(FixedTest, ASuspendedSessionGetsNone) {
  Add(kA);
  On(event::Suspended{kA});
  Want(kA, MiB(10));
  EXPECT_TRUE(Silent<action::FixedReserved>(kA));
  On(event::Suspended{kA, false});
  EXPECT_TRUE(Granted(kA));
}

TEST_F(FixedTest, WhatIsFromBeforeARestartIsCharged) {
  event::SessionAdded added{kA, RunId{1}, MiB(100), MiB(20), {}, 0, {}};
  added.fixed = MiB(30);
  On(added);
  EXPECT_EQ(arbiter_.budget().charged(), MiB(30));
  EXPECT_EQ(arbiter_.limits().run_used(kA), MiB(50));
}

TEST_F(FixedTest, OthersGetNoMoreOfTheRoomThatOneFromBeforeARestartNeeds) {
  const auto back = [this](SessionId id, Bytes allocated, Bytes fixed) {
    On(event::SessionAdded{id, RunId{id.value}, MiB(100), allocated, {}, 1, {}, {}, fixed});
  };
  back(kA, MiB(50), {});
  back(kB, {}, MiB(30));
  back(kC, {}, MiB(30));  // with a context beside the first two
  On(event::Ready{kA, MiB(50)});
  EXPECT_TRUE(Silent<action::Grant>(kA));
  Want(kB, MiB(1));
  EXPECT_TRUE(Silent<action::FixedReserved>(kB));
  On(event::ContextWanted{kC});
  EXPECT_TRUE(Silent<action::ContextReserved>(kC));
  Later(Config().fixed_wait);  // kA waits for them, and they for kA
  EXPECT_FALSE(Granted(kB));
  EXPECT_FALSE(Said<action::ContextReserved>(kC).granted);
  EXPECT_TRUE(Silent<action::Grant>(kA));
  On(event::FixedGone{kC, MiB(30)});
  EXPECT_EQ(Said<action::Grant>(kA).credit, MiB(50));
}

TEST_F(FixedTest, WhatASuspendedSessionNeedsIsNotInTheWay) {
  Add(kA);
  Add(kB);
  Run(kA, MiB(90));
  Want(kB, MiB(20));
  EXPECT_TRUE(Silent<action::FixedReserved>(kB));
  On(event::Suspended{kA});
  EXPECT_TRUE(Silent<action::FixedReserved>(kB));  // its bytes are still there
  Release(kA);
  On(event::Evicted{kA, Bytes(), MiB(90)});
  EXPECT_TRUE(Granted(kB));
}

TEST_F(FixedTest, OneThatIsResumedWaitsForWhatOthersGotMeanwhile) {
  Add(kA);
  Add(kB);
  Add(kC);
  On(event::Reserve{kA, 1, MiB(90)});
  On(event::Suspended{kA});
  Want(kB, MiB(20));
  EXPECT_TRUE(Granted(kB));
  On(event::Ready{kA, MiB(90)});
  On(event::Suspended{kA, false});
  EXPECT_TRUE(Silent<action::Grant>(kA));
  Run(kC, MiB(70));  // others go on
  Want(kB, MiB(1), 2);
  EXPECT_TRUE(Silent<action::FixedReserved>(kB));  // but none gets more
  Release(kC);
  On(event::FixedGone{kB, MiB(10)});
  EXPECT_EQ(Said<action::Evict>(kC).target, Bytes());
  On(event::Evicted{kC, Bytes(), MiB(70)});
  EXPECT_EQ(arbiter_.sessions().at(kA).credit, MiB(90));
  EXPECT_TRUE(Silent<action::FixedReserved>(kB));
}

TEST_F(FixedTest, WhatASuspendedSessionAsksForIsNotRefusedBeforeItIsResumed) {
  Add(kA);
  Add(kB);
  On(event::Reserve{kA, 1, MiB(80)});
  On(event::Suspended{kA});
  Want(kB, MiB(30));
  EXPECT_TRUE(Granted(kB));
  Want(kA, MiB(5));
  EXPECT_TRUE(Silent<action::FixedReserved>(kA));
  Later(Config().fixed_wait);
  EXPECT_TRUE(Silent<action::FixedReserved>(kA));
  On(event::FixedGone{kB, MiB(30)});
  On(event::Suspended{kA, false});
  EXPECT_TRUE(Granted(kA));
}

// The wait for what cannot be swapped while others need the room.
class FixedWaitTest : public FixedTest {
 protected:
  static constexpr Duration kWait = Seconds(60);

  FixedWaitTest() {
    Add(kA);
    Add(kB);
    On(event::Reserve{kA, 1, MiB(90)});
  }
  Instant WokenAt() {
    for (const Action& action : said_) {
      if (const auto* wake = std::get_if<action::WakeAt>(&action)) return wake->instant;
    }
    ADD_FAILURE() << "no wake-up";
    return {};
  }
};

TEST_F(FixedWaitTest, EndsWithARefusal) {
  Want(kB, MiB(20));
  EXPECT_EQ(WokenAt(), now_ + kWait);
  Later(kWait - Duration(1));
  EXPECT_TRUE(Silent<action::FixedReserved>(kB));
  Later(Duration(1));
  EXPECT_FALSE(Granted(kB));
  EXPECT_TRUE(arbiter_.Waiting().empty());
  EXPECT_EQ(arbiter_.limits().run_used(kB), Bytes());
}

TEST_F(FixedWaitTest, EndsForEachWhenItHasWaitedLongEnough) {
  Want(kB, MiB(20), 1);
  Later(Seconds(40));
  Want(kB, MiB(20), 2);
  Later(Seconds(20));
  EXPECT_EQ(Said<action::FixedReserved>(kB).sequence, 1u);
  EXPECT_FALSE(Granted(kB));
  EXPECT_EQ(WokenAt(), now_ + Seconds(40));
  Later(Seconds(40));
  EXPECT_EQ(Said<action::FixedReserved>(kB).sequence, 2u);
  EXPECT_FALSE(Granted(kB));
}

TEST_F(FixedWaitTest, EndsForContextsToo) {
  On(event::ContextWanted{kA});  // the reserve
  On(event::Reserve{kA, 2, MiB(96)});
  On(event::ContextWanted{kB});
  Later(Seconds(40));
  EXPECT_TRUE(Silent<action::ContextReserved>(kB));
  On(event::ContextWanted{kB});
  Later(Seconds(20));
  EXPECT_FALSE(Said<action::ContextReserved>(kB).granted);
  EXPECT_EQ(arbiter_.sessions().at(kB).contexts_wanted.size(), 1u);
  Later(Seconds(40));
  EXPECT_FALSE(Said<action::ContextReserved>(kB).granted);
  EXPECT_TRUE(arbiter_.Waiting().empty());
}

TEST_F(FixedWaitTest, DoesNotCountWhileTheSessionIsSuspended) {
  Want(kB, MiB(20));
  Later(Seconds(40));
  On(event::Suspended{kB});
  Later(Seconds(100));
  EXPECT_TRUE(Silent<action::FixedReserved>(kB));
  On(event::Suspended{kB, false});
  EXPECT_EQ(WokenAt(), now_ + kWait);
  Later(kWait);
  EXPECT_FALSE(Granted(kB));
}

// However long that takes: so it is with leases.
TEST_F(FixedWaitTest, DoesNotCountWhileATurnIsToEnd) {
  On(event::PolicySet{"fcfs"});
  Add(kC);
  On(event::Reserve{kA, 2, MiB(50)});
  Run(kA, MiB(50));
  Run(kC, MiB(45));
  Want(kB, MiB(20));
  Later(kWait * 10);
  EXPECT_TRUE(Silent<action::FixedReserved>(kB));
  Release(kC);
  On(event::Evicted{kC, MiB(30), MiB(15)});
  EXPECT_TRUE(Granted(kB));
}

TEST_F(FixedWaitTest, CountsWhileWhatDoesNotAnswerIsInTheWay) {
  On(event::Reserve{kA, 2, MiB(75)});
  Run(kA, MiB(75));
  Want(kB, MiB(20));
  EXPECT_TRUE(Granted(kB));
  On(event::FixedGone{kB, MiB(20)});
  Run(kB, MiB(25));
  On(event::Ready{kB, MiB(26)});  // which takes a turn
  Later(Seconds(10));
  Said<action::Revoke>(kA);
  Later(Seconds(10));
  EXPECT_TRUE(arbiter_.sessions().at(kA).stuck);
  Add(kC);
  Want(kC, MiB(26));
  EXPECT_TRUE(Silent<action::FixedReserved>(kC));
  Later(kWait);
  EXPECT_FALSE(Granted(kC));
}

TEST_F(FixedWaitTest, BeginsAnewOnceThereHasBeenRoom) {
  Want(kB, MiB(20), 1);
  Want(kB, MiB(20), 2);
  Later(Seconds(40));
  On(event::Reserve{kA, 2, MiB(80)});
  EXPECT_TRUE(Granted(kB));
  Later(kWait - Duration(1));
  EXPECT_TRUE(Silent<action::FixedReserved>(kB));
  Later(Duration(1));
  EXPECT_FALSE(Granted(kB));
}

TEST_F(FixedTest, AbsurdClaimsAreBreaches) {
  Add(kA);
  On(event::FixedGone{kA, MiB(1)});
  Said<action::Breach>(kA);
  Want(kA, Bytes(~0ull));
  EXPECT_FALSE(Granted(kA));
  Add(kB);
  On(event::Reserve{kB, 1, MiB(100)});
  for (uint64_t i = 0; i < 1024; ++i) Want(kA, KiB(1), i);
  EXPECT_TRUE(Silent<action::Breach>(kA));
  Want(kA, KiB(1), 1024);
  Said<action::Breach>(kA);
}

}  // namespace
}  // namespace tandem::core
