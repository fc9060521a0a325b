// Each grant leads to work, and what a switch costs is learned while it is under way.
#include "src/core/arbiter_test.h"

namespace tandem::core {
namespace {

class ArbiterProgressTest : public ArbiterTest {
 protected:
  // A has the card to itself, and a copy of nothing; B has all that it needs on the host.
  void SetUp() override {
    Add(kA);
    Add(kB);
    Run(kB, MiB(80));
    Release(kB);
    On(event::Ready{kA, MiB(80)});
    On(event::Reserve{kA, 1, MiB(80)});
    now_ = now_ + Milliseconds(60);
    On(event::Evicted{kB, MiB(20), MiB(60)});
    epoch_[kA] = arbiter_.sessions().at(kA).epoch;
    On(event::Running{kA, epoch_[kA], {}});
  }
  // B waits, and A's turn ends.
  void Revoke() {
    On(event::Ready{kB, MiB(80)});
    Later(arbiter_.Quantum());
    Release(kA);
    epoch_[kB] = Said<action::Grant>(kB).epoch;
  }
  // The next chunk of A's is out, and the one of B's in that took the place of A's last one.
  void MoveChunk(Duration takes) {
    now_ = now_ + takes;
    if (out_ > Bytes()) On(event::Restored{kB, epoch_[kB], MiB(20) + out_, MiB(2)});
    out_ += MiB(2);
    On(event::Evicted{kA, MiB(80) - out_, MiB(2)});
  }
  bool Revoked() const { return arbiter_.sessions().at(kB).phase == Phase::kRevoking; }

  Bytes out_;
};

TEST_F(ArbiterProgressTest, ASwitchThatTakesLongerThanATurnComesToItsEnd) {
  Revoke();
  On(event::Ready{kA, MiB(80)});
  for (int chunk = 0; chunk < 30; ++chunk) {
    MoveChunk(Seconds(1));  // 500 times slower than assumed
    ASSERT_FALSE(Revoked()) << chunk;
  }
  On(event::Running{kB, epoch_[kB], MiB(60)});
  Later(Seconds(20 * 30) - Seconds(30));  // the turn is as long as such a switch is worth
  EXPECT_FALSE(Revoked());
  Later(Seconds(60));
  EXPECT_TRUE(Revoked());
}

TEST_F(ArbiterProgressTest, TheCostIsKnownAfterHalfOfTheFirstSwitch) {
  const Duration before = arbiter_.SwitchEstimate();
  Revoke();
  On(event::Ready{kA, MiB(80)});
  for (int chunk = 0; chunk < 15; ++chunk) MoveChunk(Milliseconds(200));  // 100 times slower
  EXPECT_LT(before, Milliseconds(100));
  // A has 30 MiB of 80 off the card by now, and as much comes back with it.
  EXPECT_NEAR(arbiter_.SwitchEstimate().seconds(), 15 * 0.2, 0.3);
}

TEST_F(ArbiterProgressTest, WhatDoesNotComeAnyMoreIsNotWaitedFor) {
  Revoke();
  On(event::Ready{kA, MiB(80)});
  for (int chunk = 0; chunk < 15; ++chunk) MoveChunk(Milliseconds(2));
  On(event::Evicted{kA, MiB(20), MiB(30)});  // all the rest is out, and B is silent
  Later(Seconds(1));
  EXPECT_FALSE(Revoked());
  Later(Seconds(2));
  ASSERT_TRUE(Revoked());
  EXPECT_EQ(Said<action::Revoke>(kB).why, action::Why::kHeldUp);
}

TEST_F(ArbiterProgressTest, OneThatOnlySaysSoHoldsNobodyUp) {
  Revoke();
  On(event::Ready{kA, MiB(80)});
  for (int chunk = 0; chunk < 15; ++chunk) MoveChunk(Milliseconds(2));
  On(event::Evicted{kA, MiB(20), MiB(30)});
  Bytes resident = MiB(20) + out_;
  for (int i = 0; i < 40 && !Revoked(); ++i) {
    now_ = now_ + Milliseconds(100);
    On(event::Restored{kB, epoch_[kB], resident += Bytes(i % 2), Bytes(i % 2)});
  }
  EXPECT_TRUE(Revoked());
}

// The other way of the bus is slow, so credit comes slowly.
TEST_F(ArbiterProgressTest, TimeWithoutCreditIsNoneOfTheBuss) {
  Revoke();
  for (int chunk = 0; chunk < 30; ++chunk) {
    now_ = now_ + Milliseconds(100);  // A is slow
    out_ += MiB(2);
    On(event::Evicted{kA, MiB(80) - out_, {}});
    now_ = now_ + Milliseconds(2);  // and B is not
    On(event::Restored{kB, epoch_[kB], MiB(20) + out_, MiB(2)});
  }
  On(event::Running{kB, epoch_[kB], MiB(60)});
  On(event::Evicted{kB, MiB(20), MiB(60)});
  Release(kB);
  On(event::Evicted{kB, MiB(20), MiB(60)});
  On(event::SessionGone{kA});
  On(event::Ready{kB, MiB(80)});
  const Epoch epoch = Said<action::Grant>(kB).epoch;
  now_ = now_ + Milliseconds(60);
  On(event::Running{kB, epoch, MiB(60)});
  EXPECT_EQ(Record().moved.Copied(Way::kIn), MiB(60));
}

// B has done what it was asked, and waits for nothing before the next order.
TEST_F(ArbiterProgressTest, TimeBetweenTwoOrdersToLeaveIsNoneOfTheBuss) {
  const Duration before = arbiter_.SwitchEstimate();
  Later(Seconds(10));
  On(event::FixedWanted{kA, 1, MiB(4)});
  EXPECT_EQ(Said<action::Evict>(kB).target, MiB(16));
  now_ = now_ + Milliseconds(4);  // as fast as its first 60 MiB
  On(event::Evicted{kB, MiB(16), MiB(4)});
  EXPECT_NEAR(arbiter_.SwitchEstimate().seconds(), before.seconds(), 1e-6);
}

TEST_F(ArbiterProgressTest, WhatIsMoreUrgentThanATurnDoesNotWaitForARestore) {
  On(event::PolicySet{"priority"});
  Revoke();
  for (int chunk = 0; chunk < 30; ++chunk) MoveChunk(Milliseconds(2));
  Add(kC);
  On(event::ClassSet{kC, Class::kProduction});
  On(event::Reserve{kC, 1, MiB(80)});
  On(event::Ready{kC, MiB(80)});
  ASSERT_TRUE(Revoked());
  EXPECT_EQ(Said<action::Revoke>(kB).why, action::Why::kInterrupted);
}

// There is room beside the holder for a moment, until its turn ends.
TEST_F(ArbiterProgressTest, WhatIsThereMayWorkForAMoment) {
  Begin(Config());
  Add(kA);
  Add(kB);
  Add(kC);
  Run(kC, MiB(30));
  Release(kC);
  Run(kA, MiB(60));
  On(event::Ready{kB, MiB(90)});
  On(event::Reserve{kB, 1, MiB(90)});
  Later(arbiter_.Quantum() - Milliseconds(10));
  EXPECT_EQ(arbiter_.sessions().at(kC).charge, MiB(30));
  On(event::Ready{kC, MiB(30)});  // it is all there still
  EXPECT_FALSE(Silent<action::Grant>(kC));
}

TEST_F(ArbiterProgressTest, NothingIsBroughtInForAMoment) {
  Begin(Config());
  Add(kA);
  Add(kB);
  Add(kC);
  Run(kC, MiB(30));
  Release(kC);
  Run(kA, MiB(90));
  now_ = now_ + Milliseconds(20);
  On(event::Evicted{kC, MiB(10), MiB(20)});
  On(event::Reserve{kA, 2, MiB(60)});
  On(event::Evicted{kA, MiB(60), {}});
  On(event::Ready{kB, MiB(90)});
  On(event::Reserve{kB, 1, MiB(90)});
  Later(arbiter_.Quantum() - Milliseconds(10));
  On(event::Ready{kC, MiB(30)});
  EXPECT_TRUE(Silent<action::Grant>(kC));
}

// It lacks a context to copy with, say.
TEST_F(ArbiterProgressTest, OneThatCanGiveNothingIsNotAskedAgainBeforeItGetsWhatItLacks) {
  Revoke();
  Later(arbiter_.config().silence * 4);
  ASSERT_TRUE(arbiter_.sessions().at(kA).stuck);
  On(event::Released{kB, epoch_[kB]});  // it was given up
  On(event::Ready{kB, MiB(80)});
  for (int i = 0; i < 10; ++i) {
    On(event::Evicted{kA, MiB(80), Bytes()});
    EXPECT_TRUE(Silent<action::Evict>(kA)) << i;
    EXPECT_FALSE(arbiter_.sessions().at(kA).stuck) << i;
    Later(Seconds(5));
    EXPECT_TRUE(Silent<action::Evict>(kA)) << i;
  }
  EXPECT_TRUE(arbiter_.sessions().at(kA).rooted);
  EXPECT_TRUE(arbiter_.sessions().at(kA).blocks_since.has_value()) << "B waits all the while";
  On(event::ContextWanted{kA});
  EXPECT_TRUE(Said<action::ContextReserved>(kA).granted);
  EXPECT_FALSE(Silent<action::Evict>(kA));
  On(event::Evicted{kA, MiB(20), MiB(60)});
  EXPECT_EQ(arbiter_.sessions().at(kA).blocks_since, std::nullopt);
}

}  // namespace
}  // namespace tandem::core
