#include "src/core/arbiter_test.h"

namespace tandem::core {
namespace {

class PriorityTest : public ArbiterTest {
 protected:
  PriorityTest() { On(event::PolicySet{"priority"}); }

  void AddOf(Class of_class, SessionId id) {
    Add(id);
    On(event::ClassSet{id, of_class});
  }
  void Ask(SessionId id, Bytes need) {
    On(event::Reserve{id, 1, need});
    On(event::Ready{id, need});
  }
  void Pause(SessionId id) { On(event::Idle{id, epoch_[id]}); }
  void GoOn(SessionId id) { On(event::Active{id, epoch_[id]}); }
  void Runs(SessionId id) {
    epoch_[id] = Said<action::Grant>(id).epoch;
    On(event::Running{id, epoch_[id], {}});
  }
  Instant WakesAt() {
    for (const Action& action : said_) {
      if (const auto* wake = std::get_if<action::WakeAt>(&action)) return wake->instant;
    }
    ADD_FAILURE() << "it does not wake";
    return now_;
  }
  // A of a class works; B of another does not fit beside it and asks for the card.
  void Contend(Class holder, Class waiter) {
    AddOf(holder, kA);
    AddOf(waiter, kB);
    Run(kA, MiB(80));
    Ask(kB, MiB(80));
  }
  // Production works on A; opportunistic work on B would fit beside it.
  void Together() {
    AddOf(Class::kProduction, kA);
    AddOf(Class::kOpportunistic, kB);
    Run(kA, MiB(40));
    Ask(kB, MiB(40));
  }
};

TEST_F(PriorityTest, AMoreUrgentClassTakesTheCardAtOnce) {
  for (const Class holder : {Class::kOpportunistic, Class::kBatch, Class::kInteractive}) {
    Begin(Config());
    On(event::PolicySet{"priority"});
    Contend(holder, static_cast<Class>(static_cast<int>(holder) - 1));
    EXPECT_FALSE(Silent<action::Revoke>(kA)) << static_cast<int>(holder);
  }
}

TEST_F(PriorityTest, ALessUrgentOneWaitsAsLongAsThereIsWork) {
  Contend(Class::kInteractive, Class::kBatch);
  EXPECT_TRUE(Silent<action::Revoke>(kA));
  Later(Seconds(10000));
  EXPECT_TRUE(Silent<action::Revoke>(kA));
  Pause(kA);
  Later(Seconds(10));
  EXPECT_FALSE(Silent<action::Revoke>(kA));
}

TEST_F(PriorityTest, OfOneClassEachHasItsTurn) {
  Contend(Class::kBatch, Class::kBatch);
  Later(arbiter_.Quantum() - Microseconds(1));
  EXPECT_TRUE(Silent<action::Revoke>(kA));
  Later(Microseconds(1));
  EXPECT_FALSE(Silent<action::Revoke>(kA));
}

TEST_F(PriorityTest, WhatProductionHasOnTheCardStaysThere) {
  Contend(Class::kProduction, Class::kInteractive);
  Pause(kA);
  EXPECT_TRUE(Silent<action::Revoke>(kA));
  Later(Seconds(100000));
  EXPECT_TRUE(Silent<action::Revoke>(kA));
  EXPECT_TRUE(Silent<action::Grant>(kB));
}

TEST_F(PriorityTest, TheMoreUrgentOfThoseWhoWaitIsNext) {
  Contend(Class::kProduction, Class::kBatch);
  AddOf(Class::kInteractive, kC);
  Ask(kC, MiB(80));
  ASSERT_EQ(arbiter_.Waiting().size(), 2u);
  EXPECT_EQ(arbiter_.Waiting()[0].id, kC);
  On(event::ClassSet{kB, Class::kProduction});
  EXPECT_EQ(arbiter_.Waiting()[0].id, kB);
}

TEST_F(PriorityTest, OpportunisticWorkHasThePausesOfOthers) {
  Together();
  EXPECT_TRUE(Silent<action::Grant>(kB));
  now_ = now_ + Milliseconds(8);
  Pause(kA);
  EXPECT_EQ(Said<action::Grant>(kB).window, Microseconds(500));
  Runs(kB);
  now_ = now_ + Milliseconds(12);
  GoOn(kA);
  EXPECT_FALSE(Silent<action::Revoke>(kB));
  EXPECT_TRUE(Silent<action::Revoke>(kA));
  Release(kB);
  EXPECT_TRUE(Silent<action::Evict>(kB));  // there is room for what it has
  On(event::Ready{kB, MiB(40)});
  EXPECT_TRUE(Silent<action::Grant>(kB));
}

TEST_F(PriorityTest, InAPauseThatIsLeftAloneItWaitsForAMomentOnly) {
  Together();
  for (int cycle = 0; cycle < 40; ++cycle) {
    now_ = now_ + Milliseconds(8);
    Pause(kA);
    if (Silent<action::Grant>(kB)) {
      const Instant at = WakesAt();
      EXPECT_GT(at, now_);
      EXPECT_LE(at, now_ + Seconds(1));
      Later(at - now_);
      EXPECT_FALSE(Silent<action::Grant>(kB));
      return;
    }
    Runs(kB);
    now_ = now_ + Milliseconds(12);
    GoOn(kA);
    Release(kB);
    On(event::Ready{kB, MiB(40)});
  }
  FAIL() << "no pause was left alone";
}

TEST_F(PriorityTest, AloneOnTheCardOpportunisticWorkIsLikeAnyOther) {
  Together();
  On(event::SessionGone{kA});
  EXPECT_FALSE(Silent<action::Grant>(kB));
  Runs(kB);
  EXPECT_FALSE(arbiter_.sessions().at(kB).contended);
}

TEST_F(PriorityTest, WhoIsNotWaitedForIsNotHeldUp) {
  Together();
  EXPECT_FALSE(arbiter_.sessions().at(kA).contended);
  EXPECT_TRUE(arbiter_.sessions().at(kA).watched);
  Pause(kA);
  Runs(kB);
  EXPECT_TRUE(arbiter_.sessions().at(kB).contended);  // it keeps little in flight
  AddOf(Class::kProduction, kC);
  Ask(kC, MiB(80));
  EXPECT_TRUE(arbiter_.sessions().at(kA).contended);
  On(event::PolicySet{"round-robin"});
  EXPECT_FALSE(arbiter_.sessions().at(kA).watched);
}

TEST_F(PriorityTest, WhoIsNoLongerOpportunisticNeedNotWait) {
  Together();
  On(event::ClassSet{kB, Class::kBatch});
  EXPECT_FALSE(Silent<action::Grant>(kB));
  EXPECT_FALSE(arbiter_.sessions().at(kA).watched);
}

TEST_F(PriorityTest, WhatIsOnItsWayToAnOpportunisticSessionIsTakenBack) {
  Together();
  Pause(kA);
  epoch_[kB] = Said<action::Grant>(kB).epoch;
  GoOn(kA);
  EXPECT_FALSE(Silent<action::Revoke>(kB));
  Release(kB);
  EXPECT_TRUE(arbiter_.sessions().at(kA).holds());
}

}  // namespace
}  // namespace tandem::core
