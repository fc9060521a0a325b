// One small scene per rule, told message by message. Contexts: arbiter_context_test.cc.
#include "src/core/arbiter_test.h"

namespace tandem::core {
namespace {

TEST_F(ArbiterTest, SessionsThatFitRunTogether) {
  Add(kA);
  Add(kB);
  Run(kA, MiB(50));
  Run(kB, MiB(50));
  EXPECT_TRUE(Silent<action::Revoke>(kA));
  EXPECT_EQ(arbiter_.budget().free(), Bytes());
  EXPECT_FALSE(arbiter_.taking_turns());
}

TEST_F(ArbiterTest, ABusyHolderKeepsItsTurnForTheQuantum) {
  Add(kA);
  Add(kB);
  Run(kA, MiB(60));
  On(event::Ready{kB, MiB(60)});
  EXPECT_TRUE(Said<action::SetContended>(kA).contended);
  EXPECT_TRUE(arbiter_.taking_turns());
  EXPECT_TRUE(Silent<action::Revoke>(kA));
  Later(arbiter_.Quantum() - Milliseconds(1));
  EXPECT_TRUE(Silent<action::Revoke>(kA));
  Later(Milliseconds(1));
  EXPECT_EQ(Said<action::Revoke>(kA).epoch, epoch_[kA]);
}

TEST_F(ArbiterTest, AHandoverMovesWhatTheNewcomerLacksAndNoMore) {
  Add(kA);
  Add(kB);
  Run(kA, MiB(60));
  On(event::Ready{kB, MiB(50)});
  Later(arbiter_.Quantum());
  Release(kA);
  EXPECT_EQ(Said<action::Grant>(kB).credit, MiB(40));  // what is free, at once
  EXPECT_EQ(Said<action::Evict>(kA).target, MiB(50));
  const Epoch epoch = Said<action::Grant>(kB).epoch;
  On(event::Evicted{kA, MiB(54), MiB(6)});
  EXPECT_EQ(Said<action::Credit>(kB).credit, MiB(46));
  On(event::Evicted{kA, MiB(49), MiB(5)});  // chunks need not divide the target
  EXPECT_EQ(Said<action::Credit>(kB).credit, MiB(50));
  EXPECT_EQ(arbiter_.sessions().at(kA).credit, MiB(49));
  now_ = now_ + Milliseconds(30);
  On(event::Running{kB, epoch, MiB(50)});
  const Handover record = Record();
  EXPECT_EQ(record.to, kB);
  EXPECT_EQ(record.from, std::vector<SessionId>{kA});
  EXPECT_EQ(record.lacked, MiB(50));
  EXPECT_EQ(record.free, MiB(40));
  EXPECT_EQ(record.out, MiB(11));
  EXPECT_EQ(record.in, MiB(50));
  EXPECT_EQ(record.running_at - record.revoked_at, Milliseconds(30));
}

class SpareTest : public ArbiterTest {
 protected:
  SpareTest() : ArbiterTest(MiB(2)) {}
  // A has 60 MiB of 100 and gives its lease back for B, which wants 46.
  void BeginHandover() {
    Add(kA);
    Add(kB);
    Run(kA, MiB(60));
    On(event::Reserve{kB, 1, MiB(46)});
    On(event::Ready{kB, MiB(46)});
    Later(Seconds(1));
    On(event::Released{kA, Said<action::Revoke>(kA).epoch});
  }
};

TEST_F(SpareTest, TheFirstChunkMayComeInBeforeAnyIsOut) {
  BeginHandover();
  EXPECT_EQ(Said<action::Evict>(kA).target, MiB(54));
  EXPECT_EQ(arbiter_.ChargeOf(kB), MiB(42));
  On(event::Evicted{kA, MiB(58), MiB(2)});
  EXPECT_EQ(Said<action::Credit>(kB).credit, MiB(44));
  On(event::Evicted{kA, MiB(56), MiB(2)});
  EXPECT_EQ(Said<action::Credit>(kB).credit, MiB(46));
  const Epoch epoch = arbiter_.sessions().at(kB).epoch;
  On(event::Running{kB, epoch, {}});
  EXPECT_TRUE(arbiter_.claimant().has_value());  // the lent bytes are not back yet
  On(event::Evicted{kA, MiB(54), MiB(2)});
  EXPECT_EQ(arbiter_.budget().free(), Bytes());
  EXPECT_EQ(Record().evicted, MiB(6));
  EXPECT_EQ(Record().out, MiB(6));
}

TEST_F(SpareTest, WhatIsLentComesBackAlsoWhereTheNewcomerGrowsMeanwhile) {
  BeginHandover();
  On(event::Reserve{kB, 2, MiB(50)});
  On(event::Ready{kB, MiB(50)});
  EXPECT_EQ(Said<action::Evict>(kA).target, MiB(50));
  for (uint64_t left = 58; left >= 50; left -= 2) On(event::Evicted{kA, MiB(left), MiB(2)});
  EXPECT_EQ(arbiter_.ChargeOf(kB), MiB(50));
  EXPECT_EQ(arbiter_.budget().charged(), MiB(100));
  EXPECT_FALSE(arbiter_.claimant().has_value());
}

TEST_F(SpareTest, WhatWasLentInVainIsTakenBackByTheNextHandover) {
  Add(kC);
  BeginHandover();
  EXPECT_EQ(arbiter_.budget().charged(), MiB(102));
  Later(arbiter_.config().silence * 4);  // A says nothing any more
  const Epoch epoch = arbiter_.sessions().at(kB).epoch;
  On(event::Released{kB, epoch});
  On(event::Reserve{kC, 1, MiB(10)});
  On(event::Ready{kC, MiB(10)});
  EXPECT_EQ(Said<action::Grant>(kC).credit, Bytes());
  EXPECT_EQ(Said<action::Evict>(kB).target, MiB(30));  // 2 for what was lent
  On(event::Evicted{kB, MiB(38), MiB(4)});
  EXPECT_EQ(Said<action::Credit>(kC).credit, MiB(4));
  On(event::Evicted{kB, MiB(32), MiB(6)});
  EXPECT_EQ(Said<action::Credit>(kC).credit, MiB(10));
  const Epoch last = arbiter_.sessions().at(kC).epoch;
  On(event::Running{kC, last, {}});
  On(event::Evicted{kB, MiB(30), MiB(2)});
  EXPECT_EQ(arbiter_.budget().charged(), MiB(100));
  EXPECT_FALSE(arbiter_.claimant().has_value());
  EXPECT_EQ(Record().lacked, MiB(12));
  EXPECT_EQ(Record().evicted, MiB(12));
}

// What its program has freed meanwhile goes with it, and is no part of the hand-over.
TEST_F(ArbiterTest, MemoryThatIsFreedDuringAHandoverIsNotEvicted) {
  Add(kA);
  Add(kB);
  Run(kA, MiB(60));
  On(event::Ready{kB, MiB(50)});
  Later(arbiter_.Quantum());
  Release(kA);
  const Epoch epoch = Said<action::Grant>(kB).epoch;
  On(event::Evicted{kA, MiB(52), MiB(8)});
  On(event::Evicted{kA, MiB(20), Bytes()});  // 50 would have done
  On(event::Running{kB, epoch, MiB(50)});
  const Handover record = Record();
  EXPECT_EQ(record.evicted, MiB(10));
  EXPECT_EQ(record.out, MiB(8));
  EXPECT_EQ(arbiter_.ChargeOf(kA), MiB(20));
}

TEST_F(ArbiterTest, ColdMemoryLeavesFirstAndThatOfWaitersLast) {
  for (const SessionId id : {kA, kB, kC}) {
    Add(id);
    now_ = now_ + Seconds(1);
    Run(id, MiB(30));
  }
  const SessionId d{4};
  Add(d);
  On(event::Ready{d, MiB(100)});
  Later(Seconds(10));
  for (const SessionId id : {kC, kA, kB}) {  // kC is the coldest
    now_ = now_ + Milliseconds(1);
    Release(id);
    if (id == kA) On(event::Ready{kA, MiB(30)});  // and kA wants to come back
  }
  EXPECT_EQ(Said<action::Grant>(d).credit, MiB(10));
  std::vector<SessionId> order;
  for (const Action& action : said_) {
    if (const auto* evict = std::get_if<action::Evict>(&action)) order.push_back(evict->id);
  }
  EXPECT_EQ(order, (std::vector<SessionId>{kC, kB, kA}));
}

TEST_F(ArbiterTest, ABusyAnswerIsRespectedAndTriedAgainLater) {
  Add(kA);
  Add(kB);
  Run(kA, MiB(60));
  On(event::Ready{kB, MiB(60)});
  Later(arbiter_.Quantum());
  const Duration deadline = Said<action::Revoke>(kA).deadline;
  On(event::Busy{kA, epoch_[kA]});
  EXPECT_TRUE(Silent<action::Revoke>(kA));
  EXPECT_TRUE(Silent<action::Grant>(kB));
  Later(Seconds(1));
  EXPECT_EQ(Said<action::Revoke>(kA).deadline, deadline * 2);
  On(event::Busy{kA, epoch_[kA]});
  Later(Seconds(1));
  Release(kA);
  On(event::Released{kB, Said<action::Grant>(kB).epoch});
  On(event::Evicted{kA, MiB(40), MiB(20)});
  On(event::Ready{kA, MiB(60)});
  // Halved twice, and doubled once it yielded.
  EXPECT_EQ(Said<action::Grant>(kA).window, arbiter_.config().window / 2);
}

TEST_F(ArbiterTest, WhoeverHasAllItNeedsNoLongerWaitsForMore) {
  Add(kA);
  Add(kB);
  Run(kA, MiB(60));
  Run(kB, MiB(40));
  On(event::Ready{kA, MiB(80)});
  EXPECT_EQ(arbiter_.Waiting().size(), 1u);
  On(event::Running{kA, epoch_[kA], {}});  // it freed some meanwhile, and opened its gate
  EXPECT_TRUE(arbiter_.Waiting().empty());
  Later(Seconds(10));
  EXPECT_TRUE(Silent<action::Revoke>(kB));
}

TEST_F(ArbiterTest, GrantsOfFreshMemoryDoNotMakeSwitchesLookDear) {
  Add(kA);
  const Duration before = arbiter_.SwitchEstimate();
  On(event::Reserve{kA, 1, MiB(60)});
  On(event::Ready{kA, MiB(60)});
  now_ = now_ + Milliseconds(5);
  On(event::Running{kA, Said<action::Grant>(kA).epoch, {}});
  EXPECT_EQ(arbiter_.SwitchEstimate(), before);
}

TEST_F(ArbiterTest, AStuckHolderKeepsItsBytesAndOthersRunBesideIt) {
  Add(kA);
  Add(kB);
  Add(kC);
  Run(kA, MiB(60));
  On(event::Ready{kB, MiB(60)});  // cannot run beside A
  On(event::Ready{kC, MiB(30)});  // can, but came later and must not delay B
  Later(arbiter_.Quantum());
  EXPECT_FALSE(Silent<action::Revoke>(kA));
  Later(Seconds(10));
  EXPECT_TRUE(arbiter_.sessions().at(kA).stuck);
  EXPECT_EQ(arbiter_.ChargeOf(kA), MiB(60));
  EXPECT_TRUE(arbiter_.sessions().at(kC).holds());
  EXPECT_FALSE(arbiter_.sessions().at(kB).holds());
  Release(kA);  // it comes back to life
  EXPECT_FALSE(arbiter_.sessions().at(kA).stuck);
  EXPECT_FALSE(Silent<action::Grant>(kB));
}

TEST_F(ArbiterTest, AHolderThatGrowsTakesIdleMemoryAndGoesOn) {
  Add(kA);
  Add(kB);
  Run(kA, MiB(60));
  On(event::Ready{kB, MiB(60)});
  Later(arbiter_.Quantum());
  Release(kA);
  On(event::Evicted{kA, MiB(40), MiB(20)});
  On(event::Running{kB, 2, {}});
  On(event::Ready{kA, MiB(60)});
  On(event::Reserve{kB, 2, MiB(70)});
  On(event::Ready{kB, MiB(70)});
  EXPECT_EQ(Said<action::Evict>(kA).target, MiB(30));
  On(event::Evicted{kA, MiB(30), MiB(10)});
  EXPECT_EQ(Said<action::Credit>(kB).credit, MiB(70));
  EXPECT_EQ(Record().out, MiB(10));
}

TEST_F(ArbiterTest, AHolderThatGrowsTwiceAtOnceIsBookedAsLackingBoth) {
  Add(kA);
  Add(kB);
  Run(kA, MiB(60));
  Release(kA);
  Run(kB, MiB(40));
  On(event::Reserve{kB, 2, MiB(60)});
  On(event::Ready{kB, MiB(50)});
  EXPECT_EQ(Said<action::Evict>(kA).target, MiB(50));
  On(event::Ready{kB, MiB(60)});  // another of its threads
  EXPECT_EQ(Said<action::Evict>(kA).target, MiB(40));
  On(event::Evicted{kA, MiB(40), MiB(20)});
  EXPECT_EQ(Record().lacked, MiB(20));
  EXPECT_EQ(Record().evicted, MiB(20));
}

TEST_F(ArbiterTest, WhoeverGrowsBeforeOthersHaveDrainedForItIsBookedAsLackingThatToo) {
  Add(kA);
  Add(kB);
  Run(kA, MiB(100));
  On(event::Reserve{kB, 1, MiB(60)});
  On(event::Ready{kB, MiB(50)});
  Later(arbiter_.Quantum());
  On(event::Ready{kB, MiB(60)});
  Release(kA);
  EXPECT_EQ(Said<action::Evict>(kA).target, MiB(40));
  const Epoch epoch = Said<action::Grant>(kB).epoch;
  On(event::Evicted{kA, MiB(40), MiB(60)});
  On(event::Running{kB, epoch, {}});
  EXPECT_EQ(Record().lacked, MiB(60));
  EXPECT_EQ(Record().evicted, MiB(60));
}

TEST_F(ArbiterTest, TwoHoldersThatBothGrowDoNotWaitForEachOther) {
  Add(kA);
  Add(kB);
  Run(kA, MiB(50));
  Run(kB, MiB(50));
  On(event::Ready{kA, MiB(70)});
  On(event::Ready{kB, MiB(70)});
  EXPECT_FALSE(Silent<action::Revoke>(kB));  // blocked, so nothing is lost
  Release(kB);
  On(event::Evicted{kB, MiB(30), MiB(20)});
  EXPECT_EQ(Said<action::Credit>(kA).credit, MiB(70));
}

TEST_F(ArbiterTest, DeathGivesEverythingBackAtAnyMoment) {
  Add(kA);
  Add(kB);
  Add(kC);
  Run(kA, MiB(90));
  On(event::Ready{kB, MiB(90)});
  On(event::Ready{kC, MiB(90)});
  Later(arbiter_.Quantum());
  Release(kA);
  On(event::Evicted{kA, MiB(50), MiB(40)});
  On(event::SessionGone{kB});  // in the middle of its restore; A is still swapping out for it
  EXPECT_EQ(Record().to, kB);
  EXPECT_EQ(Record().evicted, MiB(40));
  EXPECT_FALSE(Silent<action::Grant>(kC));
  EXPECT_EQ(arbiter_.ChargeOf(kB), Bytes());
  On(event::SessionGone{kA});  // in the middle of its swapping out
  EXPECT_EQ(Said<action::Credit>(kC).credit, MiB(90));
  EXPECT_EQ(arbiter_.budget().charged(), MiB(90));
}

TEST_F(ArbiterTest, AVictimThatFallsSilentDoesNotHoldUpTheRest) {
  Add(kA);
  Add(kB);
  Add(kC);
  Run(kA, MiB(90));
  On(event::Ready{kB, MiB(90)});
  On(event::Ready{kC, MiB(20)});
  Later(arbiter_.Quantum());
  Release(kA);
  On(event::Evicted{kA, MiB(60), MiB(30)});
  Later(Seconds(10));  // A is stopped: B cannot get what it needs
  EXPECT_FALSE(Silent<action::Revoke>(kB));
  On(event::Released{kB, 2});
  EXPECT_EQ(Record().to, kB);  // it never ran, but kA has lost its lease and its memory
  EXPECT_EQ(Record().from, std::vector<SessionId>{kA});
  EXPECT_EQ(Record().out, MiB(30));
  On(event::Ready{kB, MiB(90)});
  EXPECT_TRUE(arbiter_.sessions().at(kC).holds());
  On(event::Evicted{kA, MiB(8), MiB(52)});
  EXPECT_FALSE(arbiter_.sessions().at(kA).stuck);
}

TEST_F(ArbiterTest, AVictimThatLeavesByteByByteDoesNotHoldUpTheRest) {
  Add(kA);
  Add(kB);
  Add(kC);
  Run(kA, MiB(90));
  On(event::Ready{kB, MiB(90)});
  On(event::Ready{kC, MiB(20)});
  Later(arbiter_.Quantum());
  Release(kA);
  bool revoked = false;
  Bytes left = MiB(90);
  for (const Instant began = now_; !revoked && now_ - began < Seconds(10);) {
    Later(Milliseconds(100));
    revoked = !Silent<action::Revoke>(kB);  // the arbiter no longer counts on kA
    left -= Bytes(1);
    On(event::Evicted{kA, left, Bytes(1)});
  }
  ASSERT_TRUE(revoked);
  On(event::Released{kB, 2});
  On(event::Ready{kB, MiB(90)});
  EXPECT_TRUE(arbiter_.sessions().at(kC).holds());
}

TEST_F(ArbiterTest, UnaskedEvictedLowersCreditUnlessAGrantIsOnItsWay) {
  Add(kA);
  On(event::Ready{kA, MiB(50)});
  On(event::Evicted{kA, MiB(10), {}});  // written before it saw the Grant
  EXPECT_EQ(arbiter_.ChargeOf(kA), MiB(50));
  On(event::Running{kA, 1, {}});
  On(event::Evicted{kA, MiB(30), {}});
  EXPECT_EQ(arbiter_.ChargeOf(kA), MiB(30));
}

TEST_F(ArbiterTest, ALeaseGivenBackUnaskedIsGone) {
  Add(kA);
  Add(kB);
  Run(kA, MiB(60));
  On(event::Ready{kB, MiB(60)});
  Release(kA);  // its context broke
  EXPECT_FALSE(Silent<action::Grant>(kB));
  // In the middle of a restore, too: A is still swapping out for B.
  On(event::Released{kB, 2});
  EXPECT_FALSE(arbiter_.sessions().at(kB).holds());
  EXPECT_TRUE(arbiter_.Waiting().empty());
  EXPECT_FALSE(arbiter_.claimant().has_value());
}

TEST_F(ArbiterTest, WhoeverIsBusyBeforeItIsWholeStillGetsTheRest) {
  Add(kA);
  Add(kB);
  Run(kA, MiB(90));
  On(event::Ready{kB, MiB(90)});
  Later(arbiter_.Quantum());
  Release(kA);
  const Epoch epoch = Said<action::Grant>(kB).epoch;
  const Instant granted_at = now_;
  Later(Seconds(10));  // A is stopped
  EXPECT_EQ(Said<action::Revoke>(kB).epoch, epoch);
  On(event::Busy{kB, epoch});
  EXPECT_EQ(arbiter_.sessions().at(kB).running_since, granted_at);  // its turn counts from there
  On(event::Evicted{kA, MiB(10), MiB(80)});
  EXPECT_EQ(Said<action::Credit>(kB).credit, MiB(90));
}

// For measurements: a hand-over where no bytes have to move.
TEST_F(ArbiterTest, WhereSessionsRunAloneTheyTakeTurnsAlthoughTheyFit) {
  ArbiterConfig config = Config();
  config.turns.alone = true;
  Begin(config);
  Add(kA);
  Add(kB);
  Add(kC);
  Run(kA, MiB(10));
  On(event::ContextWanted{kB});
  On(event::ContextWanted{kB});  // the second one is not in the reserve
  EXPECT_TRUE(Said<action::ContextReserved>(kB).granted);
  On(event::Ready{kB, MiB(10)});
  On(event::Ready{kC, Bytes()});  // it has no memory at all
  EXPECT_TRUE(arbiter_.taking_turns());
  Later(arbiter_.Quantum() - Milliseconds(1));
  EXPECT_TRUE(Silent<action::Revoke>(kA));
  Later(Milliseconds(1));
  Said<action::Revoke>(kA);
  Release(kA);
  EXPECT_EQ(Said<action::Grant>(kB).credit, MiB(10));
  EXPECT_TRUE(Silent<action::Evict>(kA));
  EXPECT_TRUE(Silent<action::Grant>(kC));
  epoch_[kB] = Said<action::Grant>(kB).epoch;
  On(event::Running{kB, epoch_[kB], {}});
  On(event::Idle{kB, epoch_[kB]});
  Said<action::Revoke>(kB);  // at once: no bytes move
  Release(kB);
  Said<action::Grant>(kC);
}

TEST_F(ArbiterTest, ALimitMayBeSetWhileSessionsRun) {
  Add(kA);
  On(event::Reserve{kA, 1, MiB(40)});
  On(event::LimitSet{RunId{kA.value}, MiB(30)});
  On(event::Reserve{kA, 2, MiB(41)});
  EXPECT_FALSE(Said<action::Reserved>(kA).granted);
  On(event::Ready{kA, MiB(40)});  // what it has it may use
  Said<action::Grant>(kA);
  On(event::LimitSet{RunId{99}, MiB(1)});
}

TEST_F(ArbiterTest, WhatWasAskedForBeforeALimitFellIsNoBreach) {
  Add(kA);
  On(event::Reserve{kA, 1, MiB(90)});
  On(event::LimitSet{RunId{kA.value}, MiB(60)});
  On(event::Reserve{kA, 2, MiB(50)});  // one thread frees, another has seen it all
  On(event::Ready{kA, MiB(90)});
  EXPECT_TRUE(Silent<action::Breach>(kA));
  Said<action::Grant>(kA);
}

TEST_F(ArbiterTest, WhoeverNeedsLessThanItAskedForIsServedWhereThatFits) {
  Add(kA);
  Add(kB);
  On(event::Reserve{kA, 1, MiB(90)});
  Run(kB, MiB(20));
  On(event::Ready{kA, MiB(90)});
  EXPECT_TRUE(Silent<action::Grant>(kA));
  On(event::Ready{kA, MiB(80)});
  EXPECT_EQ(Said<action::Grant>(kA).credit, MiB(80));
}

TEST_F(ArbiterTest, AbsurdClaimsAreBreachesAndChangeNothing) {
  Add(kA);
  On(event::Evicted{kA, MiB(1), {}});
  Said<action::Breach>(kA);
  On(event::Ready{kA, Bytes(~0ull)});
  Said<action::Breach>(kA);
  On(event::ContextGone{kA});
  Said<action::Breach>(kA);
  for (const Event& stray : std::vector<Event>{
           event::Running{kA, 9, {}}, event::Idle{kA, 9}, event::Active{kA, 9},
           event::Released{kA, 9}, event::Busy{kA, 9}, event::Ready{SessionId{99}, {}}}) {
    On(stray);
    EXPECT_TRUE(said_.empty());
  }
}

}  // namespace
}  // namespace tandem::core
