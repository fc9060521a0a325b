// Sessions that may allocate more than fits on the card.
#include "src/core/arbiter_test.h"

namespace tandem::core {
namespace {

class OversubscribeTest : public ArbiterTest {
 protected:
  OversubscribeTest() {
    Join(kA);
    Add(kB);
  }
  void Join(SessionId id, Bytes allocated = {}, Bytes resident = {}) {
    event::SessionAdded added;
    added.id = id;
    added.run = RunId{id.value};
    added.limit = MiB(300);
    added.allocated = allocated;
    added.resident = resident;
    added.oversubscribes = true;
    On(added);
  }
  bool Reserve(SessionId id, Bytes total) {
    On(event::Reserve{id, ++sequence_, total});
    return Said<action::Reserved>(id).granted;
  }

  uint64_t sequence_ = 0;
};

TEST_F(OversubscribeTest, OnlyTheRunsLimitBoundsWhatItAllocates) {
  EXPECT_TRUE(Reserve(kA, MiB(300)));
  EXPECT_FALSE(Reserve(kA, MiB(301)));
  EXPECT_EQ(arbiter_.LimitOf(kA), MiB(300));
  EXPECT_FALSE(Reserve(kB, MiB(101)));
  EXPECT_EQ(arbiter_.LimitOf(kB), MiB(100));
}

// So is the need of one that asks for room for what it will allocate.
TEST_F(OversubscribeTest, WhatIsAskedForBeforeItIsAllocatedIsCutToWhatTheCardCanHold) {
  constexpr SessionId kD{4};
  Add(kD);
  EXPECT_TRUE(Reserve(kD, MiB(50)));
  Run(kB, MiB(60));
  On(event::Ready{kD, MiB(90)});
  EXPECT_TRUE(Silent<action::Grant>(kD));
  On(event::FixedWanted{kB, 1, MiB(20)});
  EXPECT_TRUE(Said<action::FixedReserved>(kB).granted);
  On(event::Idle{kB, epoch_[kB]});
  Later(Seconds(1));
  Release(kB);
  On(event::Evicted{kB, Bytes(), MiB(60)});
  EXPECT_EQ(arbiter_.ChargeOf(kD), MiB(80));
}

TEST_F(OversubscribeTest, WhatTheCardDoesNotHoldMustFitOnTheHost) {
  HostLimits host{MiB(70)};
  ArbiterConfig config = Config();
  config.host = &host;
  Begin(config);
  Join(kA);
  Add(kB);
  EXPECT_FALSE(Reserve(kA, MiB(171)));
  EXPECT_TRUE(Said<action::HostFull>(kA).id == kA);
  EXPECT_TRUE(Reserve(kA, MiB(150)));
  EXPECT_EQ(arbiter_.HostShare(kA), MiB(50));
  EXPECT_FALSE(Reserve(kB, MiB(11)));  // as much again of either may have to leave
  EXPECT_TRUE(Reserve(kB, MiB(10)));
  EXPECT_EQ(arbiter_.HostShare(kA), MiB(60));
  EXPECT_EQ(host.promised(), MiB(70));
}

TEST_F(OversubscribeTest, WhatIsColdIsPromisedBesideWhatHasLeft) {
  HostLimits host{MiB(300)};
  ArbiterConfig config = Config();
  config.host = &host;
  Begin(config);
  Join(kA);
  Add(kB);
  ASSERT_TRUE(Reserve(kA, MiB(150)));
  On(event::Ready{kA, MiB(150)});
  const Epoch epoch = Said<action::Grant>(kA).epoch;
  On(event::Running{kA, epoch, {}});
  ASSERT_TRUE(Reserve(kB, MiB(100)));
  On(event::Ready{kB, MiB(100)});
  Later(Seconds(10));
  On(event::Released{kA, epoch});
  On(event::Evicted{kA, {}, MiB(100)});
  On(event::SessionGone{kB});
  EXPECT_EQ(host.promised(), MiB(150));

  // On its way back it is promised until it has arrived.
  On(event::Ready{kA, MiB(150)});
  const Epoch again = Said<action::Grant>(kA).epoch;
  EXPECT_EQ(host.promised(), MiB(150));
  On(event::Restored{kA, again, MiB(40), MiB(40)});
  EXPECT_EQ(host.promised(), MiB(110));
  On(event::Running{kA, again, MiB(100)});
  EXPECT_EQ(host.promised(), MiB(50));
}

TEST_F(OversubscribeTest, ItGetsAllThereIsAgainWhereRoomWasTakenAndGivenBack) {
  Add(kC);
  ASSERT_TRUE(Reserve(kA, MiB(200)));
  Run(kB, MiB(50));
  On(event::Ready{kA, MiB(200)});
  On(event::FixedWanted{kB, 1, MiB(40)});
  EXPECT_EQ(arbiter_.sessions().at(kA).need, MiB(60));
  On(event::FixedGone{kB, MiB(40)});
  EXPECT_EQ(arbiter_.sessions().at(kA).need, MiB(100));
}

TEST_F(OversubscribeTest, WhatAStoppedOneKeepsIsNotWaitedFor) {
  ASSERT_TRUE(Reserve(kA, MiB(200)));
  Run(kB, MiB(10));
  Release(kB);
  On(event::Ready{kA, MiB(200)});
  Later(Seconds(10));  // B does not give up what it has
  Later(Seconds(10));
  EXPECT_TRUE(arbiter_.sessions().at(kB).stuck);
  EXPECT_EQ(arbiter_.MostResident(arbiter_.sessions().at(kA)), MiB(90));
  EXPECT_EQ(arbiter_.sessions().at(kA).need, MiB(90));
}

TEST_F(OversubscribeTest, NorIsWhatOneKeepsThatIsStoppedUnderItsLease) {
  ASSERT_TRUE(Reserve(kA, MiB(200)));
  Run(kB, MiB(40));
  On(event::Ready{kA, MiB(200)});
  for (int i = 0; i < 3 && !arbiter_.sessions().at(kB).stuck; ++i) Later(Seconds(10));
  EXPECT_TRUE(arbiter_.sessions().at(kB).holds());
  EXPECT_EQ(Said<action::Grant>(kA).credit, MiB(60));
}

TEST_F(OversubscribeTest, ItNeedsNoMoreThanTheCardHas) {
  ASSERT_TRUE(Reserve(kA, MiB(200)));
  On(event::Ready{kA, MiB(200)});
  const auto grant = Said<action::Grant>(kA);
  EXPECT_EQ(grant.credit, MiB(100));
  On(event::Running{kA, grant.epoch, {}});
  EXPECT_FALSE(arbiter_.taking_turns());
  On(event::Ready{kA, MiB(150)});
  EXPECT_EQ(Said<action::Credit>(kA).credit, MiB(100));
}

TEST_F(OversubscribeTest, ItTakesTurnsWithOthers) {
  ASSERT_TRUE(Reserve(kA, MiB(200)));
  On(event::Ready{kA, MiB(100)});
  const auto grant = Said<action::Grant>(kA);
  On(event::Running{kA, grant.epoch, {}});
  On(event::Reserve{kB, 1, MiB(30)});
  On(event::Ready{kB, MiB(30)});
  EXPECT_TRUE(arbiter_.taking_turns());
  Later(Seconds(5));
  EXPECT_EQ(Said<action::Revoke>(kA).epoch, grant.epoch);
  On(event::Released{kA, grant.epoch});
  EXPECT_EQ(Said<action::Evict>(kA).target, MiB(70));
  On(event::Evicted{kA, MiB(70), MiB(30)});
  EXPECT_EQ(Said<action::Credit>(kB).credit, MiB(30));
}

// It runs with what they leave: its need falls.
TEST_F(OversubscribeTest, ItIsInNobodysWayWhoWantsWhatCannotBeSwapped) {
  ASSERT_TRUE(Reserve(kA, MiB(200)));
  On(event::Ready{kA, MiB(100)});
  const auto grant = Said<action::Grant>(kA);
  On(event::Running{kA, grant.epoch, {}});
  On(event::FixedWanted{kB, 7, MiB(40)});
  Later(Seconds(5));
  On(event::Released{kA, grant.epoch});
  EXPECT_EQ(Said<action::Evict>(kA).target, MiB(60));
  On(event::Ready{kA, MiB(100)});  // it has not seen yet that there is less
  On(event::Evicted{kA, MiB(60), MiB(40)});
  EXPECT_TRUE(Said<action::FixedReserved>(kB).granted);
  EXPECT_EQ(arbiter_.MostResident(), MiB(60));
  EXPECT_EQ(Said<action::Grant>(kA).credit, MiB(60));
}

TEST_F(OversubscribeTest, OneFromBeforeARestartComesBackWithAllItHas) {
  Join(kC, MiB(250), MiB(90));
  EXPECT_EQ(arbiter_.limits().allocated(kC), MiB(250));
  On(event::Ready{kC, MiB(100)});
  EXPECT_EQ(Said<action::Grant>(kC).credit, MiB(100));
  event::SessionAdded claims;
  claims.allocated = MiB(280);
  EXPECT_TRUE(arbiter_.MayReturn(kC, &claims));
}

}  // namespace
}  // namespace tandem::core
