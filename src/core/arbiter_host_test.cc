// Promises of the host's memory, and refusals for lack of it.
#include "src/core/arbiter_test.h"

namespace tandem::core {
namespace {

// Of one session.
HostNeeds Of(Bytes bytes) {
  return {{kA, bytes}};
}

TEST(HostLimitsTest, GpusShareOneLimit) {
  HostLimits host(MiB(100));
  host.Promise(0, Of(MiB(60)));
  EXPECT_TRUE(host.Fits(1, Of(MiB(40))));
  EXPECT_FALSE(host.Fits(1, Of(MiB(41))));
  EXPECT_TRUE(host.Fits(0, Of(MiB(100))));
  host.Promise(1, Of(MiB(60)));  // in any case
  EXPECT_EQ(host.promised(), MiB(120));
  EXPECT_EQ(host.LeftInMemory(), Bytes());
  EXPECT_TRUE(host.Fits(0, Of(MiB(60))));
  EXPECT_FALSE(host.Fits(0, Of(MiB(61))));
  host.Raise(MiB(50));
  EXPECT_TRUE(host.Fits(0, Of(MiB(90))));
  EXPECT_FALSE(host.Fits(0, Of(MiB(91))));
}

TEST(HostLimitsTest, WhatOthersHaveTakenCannotBePromised) {
  Bytes available = MiB(30);
  HostLimits host(MiB(100), [&] { return available; });
  EXPECT_TRUE(host.Fits(0, Of(MiB(30))));
  EXPECT_FALSE(host.Fits(0, Of(MiB(31))));
  host.Promise(0, Of(MiB(30)));
  available = MiB(10);  // free beside the promised bytes, which are in use
  EXPECT_TRUE(host.Fits(0, Of(MiB(40))));
  EXPECT_FALSE(host.Fits(0, Of(MiB(41))));
  available = MiB(80);
  EXPECT_EQ(host.LeftInMemory(), MiB(70));
}

// A daemon that starts while the host is full must not be poor for ever.
TEST(HostLimitsTest, WhatWasMeasuredGrowsWithWhatThereIs) {
  Bytes available;
  HostLimits host(
      Bytes(), [&] { return available; }, true);
  EXPECT_FALSE(host.Fits(0, Of(MiB(1))));
  available = MiB(100);
  EXPECT_TRUE(host.Fits(0, Of(MiB(90))));
  EXPECT_FALSE(host.Fits(0, Of(MiB(91))));
  EXPECT_EQ(host.limit(), MiB(90));
  host.Promise(0, Of(MiB(90)));
  available = MiB(20);  // most of it has been taken
  EXPECT_FALSE(host.Fits(0, Of(MiB(91))));
  EXPECT_EQ(host.limit(), MiB(90));
}

TEST(HostLimitsTest, TheFileTakesWhatTheMemoryDoesNot) {
  HostLimits host(MiB(50));
  host.AllowSpilling(MiB(100));
  host.Promise(0, {{kA, MiB(40)}, {kB, MiB(40)}});
  EXPECT_EQ(host.PlaceOf(0, kA).memory, MiB(40));
  EXPECT_EQ(host.PlaceOf(0, kB).memory, MiB(10));
  EXPECT_EQ(host.PlaceOf(0, kB).spilled, MiB(30));
  EXPECT_EQ(host.spilled(), MiB(30));
  EXPECT_EQ(host.promised(), MiB(80));
  EXPECT_EQ(host.limit(), MiB(150));
  EXPECT_TRUE(host.Fits(0, {{kA, MiB(40)}, {kB, MiB(110)}}));
  EXPECT_FALSE(host.Fits(0, {{kA, MiB(40)}, {kB, MiB(111)}}));
  EXPECT_TRUE(host.Fits(1, {{kC, MiB(70)}}));
  EXPECT_FALSE(host.Fits(1, {{kC, MiB(71)}}));
}

// A session's bytes in memory are not copied to the file to make room for another session's.
TEST(HostLimitsTest, MemoryStaysWithWhoHasItAndTheFileIsLeftFirst) {
  HostLimits host(MiB(50));
  host.AllowSpilling(MiB(100));
  host.Promise(0, {{kB, MiB(60)}});
  host.Promise(0, {{kA, MiB(20)}, {kB, MiB(60)}});
  EXPECT_EQ(host.PlaceOf(0, kA).spilled, MiB(20));
  EXPECT_EQ(host.PlaceOf(0, kB).memory, MiB(50));
  host.Promise(0, {{kA, MiB(20)}, {kB, MiB(45)}});
  EXPECT_EQ(host.PlaceOf(0, kB).spilled, Bytes());
  EXPECT_EQ(host.PlaceOf(0, kB).memory, MiB(45));
  EXPECT_EQ(host.PlaceOf(0, kA).memory, Bytes());  // until it needs more
  host.Promise(0, {{kA, MiB(30)}, {kB, MiB(45)}});
  EXPECT_EQ(host.PlaceOf(0, kA).memory, MiB(5));
  EXPECT_EQ(host.PlaceOf(0, kA).spilled, MiB(25));
  host.Forget(0, kA);
  EXPECT_EQ(host.spilled(), Bytes());
  EXPECT_EQ(host.PlaceOf(0, kA).total(), Bytes());
}

TEST(HostLimitsTest, WhatNeedsMemoryGetsItFirstAndNothingElse) {
  HostLimits host(MiB(50));
  host.AllowSpilling(MiB(100));
  const HostNeeds needs = {{kA, MiB(40)}, {kB, MiB(30), true}};
  EXPECT_TRUE(host.Fits(0, needs));
  host.Promise(0, needs);
  EXPECT_EQ(host.PlaceOf(0, kB).memory, MiB(30));
  EXPECT_EQ(host.PlaceOf(0, kA).memory, MiB(20));
  EXPECT_FALSE(host.Fits(0, {{kA, MiB(40)}, {kB, MiB(31), true}}));  // kA's is not taken away
}

TEST(HostLimitsTest, ADiskMayBeFull) {
  Bytes on_disk = MiB(10);
  HostLimits host(MiB(50));
  host.AllowSpilling(MiB(100), [&] { return on_disk; });
  EXPECT_TRUE(host.Fits(0, Of(MiB(60))));
  EXPECT_FALSE(host.Fits(0, Of(MiB(61))));
  host.Promise(0, Of(MiB(60)));
  on_disk = Bytes();
  EXPECT_TRUE(host.Fits(0, Of(MiB(60))));
  EXPECT_FALSE(host.Fits(0, Of(MiB(61))));
}

TEST(HostLimitsTest, OneUserLeavesOthersAFifthAndTwoHaveEqualParts) {
  HostLimits host(MiB(90));
  EXPECT_TRUE(host.Fits(0, {{kA, MiB(90), false, "anna"}}, "anna")) << "users do not share";
  host.ShareAmongUsers();
  EXPECT_FALSE(host.Fits(0, {{kA, MiB(73), false, "anna"}}, "anna"));
  EXPECT_TRUE(host.Fits(0, {{kA, MiB(72), false, "anna"}}, "anna"));
  host.Promise(0, {{kA, MiB(40), false, "anna"}});
  EXPECT_TRUE(host.Fits(1, {{kB, MiB(40), false, "ben"}}, "ben")) << "40 of 50, 10 are left";
  EXPECT_FALSE(host.Fits(1, {{kB, MiB(41), false, "ben"}}, "ben"));
  host.Promise(1, {{kB, MiB(40), false, "ben"}});
  EXPECT_FALSE(host.Fits(0, {{kC, MiB(1), false, "anna"}}, "anna"));
  EXPECT_TRUE(host.Fits(0, {{kC, MiB(8), false, "carl"}}, "carl"));
  host.Forget(1, kB, "ben");
  EXPECT_TRUE(host.Fits(0, {{kC, MiB(32), false, "anna"}}, "anna")) << "of one user together";
  EXPECT_FALSE(host.Fits(0, {{kC, MiB(33), false, "anna"}}, "anna"));
}

TEST(HostLimitsTest, OneUserLeavesOthersOfTheMemoryWhereAFileWillNotDo) {
  HostLimits host(MiB(50));
  host.AllowSpilling(MiB(1000));
  host.ShareAmongUsers();
  EXPECT_TRUE(host.Fits(0, {{kA, MiB(40), true, "anna"}}, "anna"));
  EXPECT_FALSE(host.Fits(0, {{kA, MiB(41), true, "anna"}}, "anna"));
  EXPECT_TRUE(host.Fits(0, {{kA, MiB(800), false, "anna"}}, "anna"));
}

// What one session allocates may make others' promises grow.
TEST(HostLimitsTest, GrowthOfOthersIsOnNobodysAccountButTakesWhatIsLeft) {
  HostLimits host(MiB(90));
  host.ShareAmongUsers();
  EXPECT_TRUE(host.Fits(0, {{kA, MiB(80), false, "anna"}, {kB, MiB(1), false, "ben"}}, "carl"));
  EXPECT_TRUE(host.Fits(0, {{kA, MiB(48), false, "anna"}, {kB, MiB(30), false, "ben"}}, "anna"));
  EXPECT_FALSE(host.Fits(0, {{kA, MiB(49), false, "anna"}, {kB, MiB(30), false, "ben"}}, "anna"));
}

// The scene's card has a budget of 100 MiB.
class HostTest : public ArbiterTest {
 protected:
  void Start(Bytes host) {
    host_ = HostLimits(host);
    ArbiterConfig config = Config();
    config.host = &host_;
    Begin(config);
    for (const SessionId id : {kA, kB, kC}) Add(id);
  }
  bool Reserve(SessionId id, Bytes total) {
    On(event::Reserve{id, ++sequence_, total});
    return Said<action::Reserved>(id).granted;
  }
  // By an order that has ended since.
  void RunAndSendToHost(SessionId id, Bytes bytes) {
    Run(id, bytes);
    On(event::Suspended{id});
    Release(id);
    On(event::Evicted{id, {}, bytes});
    On(event::Suspended{id, false});
  }

  HostLimits host_{Bytes()};
  uint64_t sequence_ = 0;
};

TEST_F(HostTest, WhatFitsOnTheCardTogetherNeedsNoHostMemory) {
  Start(Bytes());
  EXPECT_TRUE(Reserve(kA, MiB(60)));
  EXPECT_TRUE(Reserve(kB, MiB(40)));
  EXPECT_EQ(host_.promised(), Bytes());
  EXPECT_FALSE(Reserve(kC, MiB(1)));
  EXPECT_FALSE(Silent<action::HostFull>(kC));
  EXPECT_EQ(arbiter_.limits().allocated(kC), Bytes());
  On(event::Reserve{kA, 9, MiB(50)});
  EXPECT_TRUE(Reserve(kC, MiB(10)));
}

TEST_F(HostTest, NobodyGivesUpMoreThanTheCardLacks) {
  Start(MiB(40));
  EXPECT_TRUE(Reserve(kA, MiB(60)));
  EXPECT_TRUE(Reserve(kB, MiB(60)));
  EXPECT_EQ(arbiter_.HostShare(kA), MiB(20));
  EXPECT_EQ(arbiter_.HostShare(kB), MiB(20));
  EXPECT_EQ(host_.promised(), MiB(40));
  EXPECT_FALSE(Reserve(kB, MiB(61)));  // each would have to give up 21
  EXPECT_EQ(host_.promised(), MiB(40));
  EXPECT_EQ(arbiter_.limits().allocated(kB), MiB(60));
  On(event::SessionGone{kA});
  EXPECT_EQ(host_.promised(), Bytes());
  EXPECT_TRUE(Reserve(kB, MiB(61)));
}

TEST_F(HostTest, ASmallSessionNeedsNoMoreThanItHas) {
  Start(MiB(1000));
  EXPECT_TRUE(Reserve(kA, MiB(90)));
  EXPECT_TRUE(Reserve(kB, MiB(5)));
  EXPECT_TRUE(Reserve(kC, MiB(35)));
  EXPECT_EQ(arbiter_.HostShare(kA), MiB(30));
  EXPECT_EQ(arbiter_.HostShare(kB), MiB(5));
  EXPECT_EQ(arbiter_.HostShare(kC), MiB(30));
}

// It would stay on the card anyway, and nothing of it could leave.
TEST_F(HostTest, WhatWasAllocatedWithoutADaemonIsTakenInAlsoWhereTheHostIsFull) {
  Start(MiB(40));
  EXPECT_TRUE(Reserve(kA, MiB(60)));
  EXPECT_TRUE(Reserve(kB, MiB(60)));
  event::SessionAdded again{SessionId{9}, RunId{1}, MiB(100), MiB(70), MiB(20), 0, {}};
  ASSERT_TRUE(arbiter_.MayReturn(kA, &again));
  again.replaces = kA;
  On(again);
  EXPECT_GT(host_.promised(), MiB(40));
  EXPECT_FALSE(Reserve(kB, MiB(61))) << "there is no more for others";
  event::SessionAdded above{kB, RunId{2}, MiB(100), MiB(101), {}, 0, {}};
  EXPECT_FALSE(arbiter_.MayReturn(kB, &above)) << "its limit";
  host_.ShareAmongUsers();
  event::SessionAdded more{kB, RunId{2}, MiB(100), MiB(70), {}, 0, {}};
  EXPECT_FALSE(arbiter_.MayReturn(kB, &more)) << "beyond what one user may have of the host";
}

TEST_F(HostTest, ALimitRefusesWithoutAWordAboutTheHost) {
  Start(MiB(1000));
  EXPECT_FALSE(Reserve(kA, MiB(101)));
  EXPECT_TRUE(Silent<action::HostFull>(kA));
}

TEST_F(HostTest, ASuspendedSessionNeedsRoomForAllOfItUntilItRunsAgain) {
  Start(MiB(100));
  Run(kA, MiB(60));
  On(event::Suspended{kA, true});
  EXPECT_EQ(arbiter_.HostShare(kA), MiB(60));
  Release(kA);
  On(event::Evicted{kA, MiB(10), MiB(50)});
  On(event::Evicted{kA, Bytes(), MiB(10)});
  EXPECT_FALSE(Reserve(kB, MiB(90)));  // 60 + 50 for the two would be more than 100
  On(event::Suspended{kA, false});
  EXPECT_EQ(arbiter_.HostShare(kA), MiB(60));
  On(event::Ready{kA, MiB(60)});
  On(event::Running{kA, Said<action::Grant>(kA).epoch, MiB(60)});
  EXPECT_EQ(host_.promised(), Bytes());
}

TEST_F(HostTest, ASessionThatMayLeaveStaysWhereTheHostHasNoRoomForIt) {
  Start(MiB(50));
  Run(kA, MiB(60));
  On(event::Leaving{kA});
  EXPECT_TRUE(Silent<action::Revoke>(kA));
  EXPECT_EQ(host_.promised(), Bytes());
  Run(kB, MiB(40));
  On(event::Leaving{kB});
  Said<action::Revoke>(kB);
  EXPECT_EQ(host_.promised(), MiB(40));
}

TEST_F(HostTest, WhatIsOnTheHostStaysPromisedWhenOthersGo) {
  Start(MiB(100));
  Run(kA, MiB(60));
  EXPECT_TRUE(Reserve(kB, MiB(60)));
  On(event::Idle{kA, epoch_[kA]});
  On(event::Ready{kB, MiB(60)});
  Later(Seconds(1));
  Release(kA);
  On(event::Evicted{kA, MiB(40), MiB(20)});
  On(event::SessionGone{kB});
  EXPECT_EQ(arbiter_.HostShare(kA), MiB(20));
  On(event::Reserve{kA, 9, MiB(15)});
  EXPECT_EQ(host_.promised(), MiB(15));
}

// Released before it ran: arrived bytes still have their copy, and new memory was never written.
TEST_F(HostTest, WhatHasNotRunSinceItsGrantSendsNothingMore) {
  Start(MiB(200));
  RunAndSendToHost(kA, MiB(60));
  EXPECT_TRUE(Reserve(kA, MiB(80)));
  On(event::Ready{kA, MiB(80)});
  On(event::Released{kA, Said<action::Grant>(kA).epoch});
  EXPECT_EQ(arbiter_.OnHost(arbiter_.sessions().at(kA)), MiB(60));
  EXPECT_TRUE(Reserve(kB, MiB(60)));
  On(event::Ready{kB, MiB(60)});
  EXPECT_EQ(Said<action::Evict>(kA).target, MiB(40));
  EXPECT_EQ(arbiter_.OnHost(arbiter_.sessions().at(kA)), MiB(60));
}

TEST_F(HostTest, WhatAnEarlierGrantDidNotBringIsStillOnTheHost) {
  Start(MiB(200));
  RunAndSendToHost(kA, MiB(60));
  for (int i = 0; i < 2; ++i) {
    On(event::Ready{kA, MiB(60)});
    const Epoch epoch = Said<action::Grant>(kA).epoch;
    On(event::Restored{kA, epoch, MiB(20), MiB(20)});
    EXPECT_EQ(arbiter_.sessions().at(kA).arrived, MiB(20));
    On(event::Released{kA, epoch});
  }
}

TEST_F(HostTest, WhatCannotBeSwappedPushesOthersToTheHost) {
  Start(MiB(15));
  EXPECT_TRUE(Reserve(kA, MiB(60)));
  EXPECT_TRUE(Reserve(kB, MiB(30)));
  On(event::FixedWanted{kC, 1, MiB(18)});  // 8 of A and 8 of B
  EXPECT_FALSE(Said<action::FixedReserved>(kC).granted);
  EXPECT_FALSE(Silent<action::HostFull>(kC));
  On(event::FixedWanted{kC, 2, MiB(17)});
  EXPECT_TRUE(Said<action::FixedReserved>(kC).granted);
  EXPECT_EQ(host_.promised(), MiB(14));
  On(event::ContextWanted{kB});  // in the reserve
  EXPECT_TRUE(Said<action::ContextReserved>(kB).granted);
  On(event::ContextWanted{kC});  // 8 MiB more of the card
  EXPECT_FALSE(Said<action::ContextReserved>(kC).granted);
  EXPECT_FALSE(Silent<action::HostFull>(kC));
}

TEST_F(HostTest, WhatCameFromBeforeIsPromisedInAnyCase) {
  Start(MiB(10));
  On(event::SessionAdded{SessionId{7}, RunId{7}, MiB(100), MiB(50), MiB(20), 0, {}});
  EXPECT_EQ(host_.promised(), MiB(30));
  EXPECT_TRUE(Reserve(kA, MiB(50)));
  EXPECT_FALSE(Reserve(kB, MiB(1)));
}

// A promise that was never used goes back, and comes again.
class LapseTest : public HostTest {
 protected:
  // A and C have allocated what the host promised; A never uses it.
  LapseTest() {
    Start(MiB(80));
    EXPECT_TRUE(Reserve(kA, MiB(90)));
    Run(kC, MiB(50));
    EXPECT_EQ(host_.promised(), MiB(80));
    EXPECT_FALSE(Reserve(kB, MiB(10)));
  }
  bool Lapsed(SessionId id) const { return arbiter_.sessions().at(id).lapsed; }
  const Duration bound_ = arbiter_.config().unused_promise;
};

TEST_F(LapseTest, AnUnusedPromiseIsTakenBackAfterTheBound) {
  bool woken = false;
  for (const Action& action : said_) {
    const auto* wake = std::get_if<action::WakeAt>(&action);
    woken = woken || (wake != nullptr && wake->instant <= now_ + bound_);
  }
  EXPECT_TRUE(woken);
  Later(bound_ - Seconds(1));
  EXPECT_FALSE(Lapsed(kA));
  Later(Seconds(1));
  EXPECT_TRUE(Lapsed(kA));
  EXPECT_FALSE(Lapsed(kC)) << "it has used it";
  EXPECT_EQ(host_.promised(), Bytes());
  EXPECT_TRUE(Reserve(kB, MiB(50)));
  EXPECT_EQ(arbiter_.limits().allocated(kA), MiB(90))
      << "its program has allocated it all the same";
}

TEST_F(LapseTest, ItIsPromisedAgainAtItsFirstUseWhereThereIsRoom) {
  Later(bound_);
  On(event::Ready{kA, MiB(90)});
  EXPECT_FALSE(Lapsed(kA));
  EXPECT_EQ(host_.promised(), MiB(80));
  Later(arbiter_.Quantum());
  Release(kC);
  Said<action::Grant>(kA);
}

TEST_F(LapseTest, ItWaitsUntilThereIsRoomAndGetsNoErrors) {
  Later(bound_);
  EXPECT_TRUE(Reserve(kB, MiB(40)));
  On(event::Ready{kA, MiB(90)});
  EXPECT_TRUE(Lapsed(kA));
  EXPECT_TRUE(Silent<action::HostFull>(kA));
  EXPECT_TRUE(arbiter_.IsHeldBack(kA));
  Later(Seconds(60));
  Release(kC);
  EXPECT_TRUE(Silent<action::Grant>(kA));
  EXPECT_EQ(arbiter_.Waiting().size(), 0u);
  On(event::SessionGone{kC});
  EXPECT_FALSE(Lapsed(kA));
  Said<action::Grant>(kA);
}

TEST_F(LapseTest, RoomOnAnotherGpuIsSeenInASecond) {
  Later(bound_);
  host_.Promise(1, {{kA, MiB(70)}});
  On(event::Ready{kA, MiB(90)});
  EXPECT_TRUE(Lapsed(kA));
  host_.Forget(1, kA);
  Later(Seconds(1));
  EXPECT_FALSE(Lapsed(kA));
}

TEST_F(LapseTest, MoreIsRefusedOrPromisedWithTheRest) {
  Later(bound_);
  EXPECT_TRUE(Reserve(kB, MiB(50)));
  EXPECT_FALSE(Reserve(kA, MiB(91)));
  EXPECT_TRUE(Lapsed(kA));
  On(event::Reserve{kA, 99, MiB(20)});  // it frees some
  EXPECT_TRUE(Lapsed(kA));
  EXPECT_TRUE(Reserve(kA, MiB(21)));
  EXPECT_FALSE(Lapsed(kA));
  On(event::SessionGone{kA});
  On(event::SessionGone{kB});
  EXPECT_EQ(host_.promised(), Bytes());
}

TEST_F(LapseTest, ItDoesNotComeBackWithMoreByRegisteringAgain) {
  Later(bound_);
  event::SessionAdded again{SessionId{9}, RunId{9}, MiB(100), MiB(90), {}, 0, {}};
  again.replaces = kA;
  ASSERT_TRUE(arbiter_.MayReturn(kA, &again));
  On(again);
  EXPECT_TRUE(Lapsed(SessionId{9}));
  EXPECT_EQ(host_.promised(), Bytes());
}

TEST_F(LapseTest, OrdersToSuspendGoWithIt) {
  Later(bound_);
  EXPECT_TRUE(Reserve(kB, MiB(60)));
  On(event::Suspended{kA, true});
  On(event::Ready{kA, MiB(90)});
  On(event::Suspended{kA, false});
  EXPECT_TRUE(Lapsed(kA));
  EXPECT_EQ(arbiter_.Waiting().size(), 0u);
  On(event::SessionGone{kB});
  EXPECT_FALSE(Lapsed(kA));
  EXPECT_EQ(arbiter_.Waiting().size(), 1u);
}

}  // namespace
}  // namespace tandem::core
