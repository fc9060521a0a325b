// What each policy does with the same scene.
#include "src/core/policy.h"

#include "src/core/arbiter_test.h"

namespace tandem::core {
namespace {

class PolicyTest : public ArbiterTest {
 protected:
  void SetPolicy(const char* name) {
    On(event::PolicySet{name});
    ASSERT_EQ(arbiter_.config().policy, name);
  }
  void WorkFor(SessionId id, Duration burst) {
    now_ = now_ + burst;
    On(event::Idle{id, epoch_[id]});
  }
  // Gives it a past of such bursts, alone on the card.
  void GetToKnow(SessionId id, Duration burst) {
    Run(id, MiB(100));
    for (int i = 0; i < 4; ++i) {
      WorkFor(id, burst);
      now_ = now_ + Seconds(10);
      On(event::Active{id, epoch_[id]});
    }
    WorkFor(id, burst);
    now_ = now_ + Seconds(10);
    Release(id);
    On(event::Evicted{id, Bytes(), MiB(100)});
  }
  // The holder has been revoked, or has paused; the next session comes in, which takes 100 ms.
  void HandOver(SessionId from, SessionId to) {
    Release(from);
    epoch_[to] = Said<action::Grant>(to).epoch;
    now_ = now_ + Milliseconds(100);
    On(event::Evicted{from, Bytes(), MiB(100)});
    On(event::Running{to, epoch_[to], MiB(100)});
  }
  // Of those who wait, in the order in which they shall be served.
  std::vector<SessionId> Order() const {
    std::vector<SessionId> order;
    for (const Wish& wish : arbiter_.Waiting()) order.push_back(wish.id);
    return order;
  }
  // It holds the card and B asks for it, when it has worked for so long.
  void Contend(Duration worked) {
    Add(kA);
    Add(kB);
    now_ = now_ + Seconds(100);  // there is something to pay for interruptions from
    Run(kA, MiB(100));
    now_ = now_ + worked;
    On(event::Ready{kB, MiB(100)});
  }
};

TEST_F(PolicyTest, EveryNameThatIsOfferedIsKnownAndNoOther) {
  const Shares shares;
  WishQueue queue;
  const PolicyContext context{TurnRules(), &shares, &queue};
  EXPECT_FALSE(PolicyNames().empty());
  for (const PolicyName& policy : PolicyNames()) {
    EXPECT_NE(MakePolicy(policy.name, context), nullptr) << policy.name;
    EXPECT_FALSE(policy.summary.empty());
  }
  EXPECT_EQ(MakePolicy("FCFS", context), nullptr);
  EXPECT_EQ(MakePolicy("", context), nullptr);
  On(event::PolicySet{"nonsense"});
  EXPECT_EQ(arbiter_.config().policy, "round-robin");
}

TEST_F(PolicyTest, RoundRobinGivesEachAQuantum) {
  Contend(Duration());
  Later(arbiter_.Quantum() - Microseconds(1));
  EXPECT_TRUE(Silent<action::Revoke>(kA));
  Later(Microseconds(1));
  EXPECT_FALSE(Silent<action::Revoke>(kA));
}

TEST_F(PolicyTest, FcfsInterruptsNobodyWhoWorks) {
  SetPolicy("fcfs");
  Contend(Duration());
  for (const Action& action : said_) EXPECT_FALSE(std::holds_alternative<action::WakeAt>(action));
  Later(Seconds(1'000'000));
  EXPECT_TRUE(Silent<action::Revoke>(kA));
  On(event::Idle{kA, epoch_[kA]});
  Later(arbiter_.SwitchEstimate() * 2);
  EXPECT_FALSE(Silent<action::Revoke>(kA));
}

TEST_F(PolicyTest, UnderFcfsWhoIsBehindMayStillFitBesideTheHolder) {
  SetPolicy("fcfs");
  Add(kA);
  Add(kB);
  Add(kC);
  Run(kA, MiB(60));
  On(event::Ready{kB, MiB(60)});
  On(event::Ready{kC, MiB(20)});
  EXPECT_FALSE(Silent<action::Grant>(kC));
}

TEST_F(PolicyTest, NvshareLetsOneAtATimeHaveThirtySecondsAndAPauseOfFive) {
  SetPolicy("nvshare");
  Add(kA);
  Add(kB);
  Run(kA, MiB(10));
  On(event::Ready{kB, MiB(10)});  // it would fit
  EXPECT_TRUE(Silent<action::Grant>(kB));
  Later(Seconds(20));
  On(event::Idle{kA, epoch_[kA]});
  Later(Milliseconds(4999));
  EXPECT_TRUE(Silent<action::Revoke>(kA));
  On(event::Active{kA, epoch_[kA]});
  Later(Milliseconds(5000));
  EXPECT_TRUE(Silent<action::Revoke>(kA));
  Later(Milliseconds(1));
  EXPECT_FALSE(Silent<action::Revoke>(kA));
}

TEST_F(PolicyTest, AShortBurstInterruptsALongOne) {
  SetPolicy("interactive");
  Contend(Milliseconds(100));
  // With the price of both switches, 202 ms, the newcomer's burst is one of up to 400.
  Later(Milliseconds(300) - Microseconds(1));
  EXPECT_TRUE(Silent<action::Revoke>(kA));
  Later(Microseconds(1));
  EXPECT_FALSE(Silent<action::Revoke>(kA));
}

TEST_F(PolicyTest, ALongBurstInterruptsNobodyBeforeTheTurnHasEnded) {
  SetPolicy("interactive");
  Add(kA);
  Add(kB);
  GetToKnow(kB, Seconds(30));
  Run(kA, MiB(100));
  now_ = now_ + Seconds(1);
  On(event::Ready{kB, MiB(100)});
  EXPECT_TRUE(Silent<action::Revoke>(kA));
  Later(arbiter_.Quantum() - Seconds(1));
  EXPECT_FALSE(Silent<action::Revoke>(kA));
}

TEST_F(PolicyTest, ADeclaredBurstCountsUntilItIsExceeded) {
  SetPolicy("interactive");
  for (const SessionId id : {kA, kB, kC}) Add(id);
  GetToKnow(kB, Seconds(20));
  GetToKnow(kC, Seconds(10));
  Run(kA, MiB(100));
  On(event::Ready{kC, MiB(100)});
  On(event::Declared{kB, Milliseconds(200)});
  On(event::Ready{kB, MiB(100)});
  EXPECT_EQ(Order(), (std::vector{kB, kC}));
  HandOver(kA, kB);
  Later(Seconds(5));  // it has not kept to that
  On(event::Idle{kB, epoch_[kB]});
  On(event::Declared{kB, Milliseconds(200)});
  HandOver(kB, kC);
  On(event::Ready{kA, MiB(100)});
  On(event::Ready{kB, MiB(100)});
  EXPECT_EQ(Order(), (std::vector{kA, kB}));  // its word counts no more
}

TEST_F(PolicyTest, ADeclarationMovesASessionThatWaitsAlready) {
  SetPolicy("interactive");
  for (const SessionId id : {kA, kB, kC}) Add(id);
  GetToKnow(kB, Seconds(20));
  GetToKnow(kC, Seconds(10));
  Run(kA, MiB(100));
  On(event::Ready{kB, MiB(100)});
  On(event::Ready{kC, MiB(100)});
  EXPECT_EQ(Order(), (std::vector{kC, kB}));
  On(event::Declared{kB, Milliseconds(200)});
  EXPECT_EQ(Order(), (std::vector{kB, kC}));
}

TEST_F(PolicyTest, ShortBurstsGoAheadOfLongOnesButNotForEver) {
  SetPolicy("interactive");
  constexpr SessionId kD{4};
  for (const SessionId id : {kA, kB, kC, kD}) Add(id);
  GetToKnow(kB, Seconds(20));  // it waits for others up to 60 s
  GetToKnow(kC, Milliseconds(50));
  GetToKnow(kD, Milliseconds(50));  // up to 0.4 s
  SetPolicy("round-robin");
  Run(kA, MiB(100));
  SetPolicy("interactive");
  On(event::Ready{kB, MiB(100)});
  EXPECT_EQ(Order(), (std::vector{kB}));
  now_ = now_ + Milliseconds(10);
  On(event::Ready{kC, MiB(100)});
  EXPECT_EQ(Order(), (std::vector{kC, kB}));
  HandOver(kA, kC);
  now_ = now_ + Seconds(60);
  On(event::Ready{kD, MiB(100)});  // it comes more than 60 s after B
  EXPECT_EQ(Order().front(), kB);
}

TEST_F(PolicyTest, WhoeverIsInterruptedWaitsAsOneWhoseBurstHasBeenThatLong) {
  SetPolicy("interactive");
  Contend(Seconds(1));
  ASSERT_FALSE(Silent<action::Revoke>(kA));
  Release(kA);
  EXPECT_EQ(arbiter_.sessions().at(kA).worked, Seconds(1));
  On(event::Ready{kA, MiB(100)});
  const int64_t patience = arbiter_.Waiting().front().id == kA
                               ? arbiter_.Waiting().front().rank - now_.ns
                               : arbiter_.Waiting().back().rank - now_.ns;
  EXPECT_EQ(patience, Seconds(4).ns);
}

TEST_F(PolicyTest, WhoeverWaitedTooLongIsNotInterrupted) {
  SetPolicy("interactive");
  Add(kA);
  Add(kB);
  Add(kC);
  GetToKnow(kB, Seconds(1));  // it waits for others up to 4 s
  Run(kA, MiB(100));
  On(event::Ready{kB, MiB(100)});
  now_ = now_ + Seconds(5);
  HandOver(kA, kB);
  now_ = now_ + Seconds(1);
  On(event::Ready{kC, MiB(100)});  // new, and so taken for short
  EXPECT_TRUE(Silent<action::Revoke>(kB));
}

TEST_F(PolicyTest, InterruptingIsPaidForFromWhatTurnsDoNotCost) {
  SetPolicy("interactive");
  Add(kA);
  Add(kB);
  Run(kA, MiB(100));
  // A holds the card for 1 s at a time, and B wants it for a moment each time.
  int interrupted = 0;
  Duration spent;
  const Instant begin = now_;
  for (int round = 0; round < 200; ++round) {
    now_ = now_ + Seconds(1);
    On(event::Ready{kB, MiB(100)});
    const Duration cost = arbiter_.SwitchEstimate();
    if (!Silent<action::Revoke>(kA)) {
      ++interrupted;
      spent = spent + cost * 2;
    } else {
      Later(arbiter_.Quantum());
      ASSERT_FALSE(Silent<action::Revoke>(kA));
    }
    HandOver(kA, kB);
    On(event::Ready{kA, MiB(100)});
    now_ = now_ + Milliseconds(1);
    On(event::Idle{kB, epoch_[kB]});
    if (Silent<action::Revoke>(kB)) Later(Seconds(1));
    ASSERT_FALSE(Silent<action::Revoke>(kB));
    HandOver(kB, kA);
  }
  EXPECT_GT(interrupted, 0);
  EXPECT_LT(interrupted, 200);
  EXPECT_LE(spent.seconds(), 3 + (now_ - begin).seconds() / 20);
}

TEST_F(PolicyTest, OfTwoWithBurstsWithoutEndNeitherInterruptsTheOther) {
  SetPolicy("interactive");
  Add(kA);
  Add(kB);
  GetToKnow(kB, Seconds(1000));
  Run(kA, MiB(100));
  now_ = now_ + Seconds(1);
  On(event::Ready{kB, MiB(100)});
  EXPECT_TRUE(Silent<action::Revoke>(kA));
  now_ = arbiter_.sessions().at(kA).running_since;
  Later(arbiter_.Quantum() - Microseconds(1));
  EXPECT_TRUE(Silent<action::Revoke>(kA));
}

// Without a waiter the holder did not report its pause; the Revoke comes before it can.
TEST_F(PolicyTest, AnHourAtWhichNobodyLookedIsNoBurst) {
  SetPolicy("interactive");
  Add(kA);
  Add(kB);
  Run(kA, MiB(100));
  now_ = now_ + Seconds(3600);
  On(event::Ready{kB, MiB(100)});
  ASSERT_FALSE(Silent<action::Revoke>(kA));
  HandOver(kA, kB);
  now_ = now_ + Seconds(600);
  On(event::Ready{kA, MiB(100)});
  EXPECT_EQ(arbiter_.sessions().at(kA).worked, Duration());
}

TEST_F(PolicyTest, WhereOneAtATimeIsToHaveTheCardThoseWhoSharedItPart) {
  Add(kA);
  Add(kB);
  Add(kC);
  Run(kA, MiB(20));
  Run(kB, MiB(20));
  Run(kC, MiB(20));
  On(event::PolicySet{"fair"});
  EXPECT_TRUE(Silent<action::Revoke>(kA));
  EXPECT_FALSE(Silent<action::Revoke>(kB));
  EXPECT_FALSE(Silent<action::Revoke>(kC));
}

TEST_F(PolicyTest, ANewPolicyRanksThoseWhoWaitAlready) {
  Add(kA);
  Add(kB);
  Add(kC);
  GetToKnow(kB, Seconds(30));
  GetToKnow(kC, Milliseconds(50));
  Run(kA, MiB(100));
  On(event::Ready{kB, MiB(100)});
  On(event::Suspended{kB, true});
  On(event::Ready{kC, MiB(100)});
  On(event::Suspended{kB, false});
  EXPECT_EQ(Order(), (std::vector{kB, kC}));
  SetPolicy("interactive");
  EXPECT_EQ(Order(), (std::vector{kC, kB}));
  SetPolicy("round-robin");
  EXPECT_EQ(Order(), (std::vector{kB, kC}));
}

}  // namespace
}  // namespace tandem::core
