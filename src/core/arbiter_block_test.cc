// Sessions that do not give others what they were asked for.
#include "src/core/arbiter_test.h"

namespace tandem::core {
namespace {

class ArbiterBlockTest : public ArbiterTest {
 protected:
  ArbiterBlockTest() {
    Add(kA);
    Add(kB);
    Run(kA, MiB(60));
  }
  // B waits, and A is asked to go.
  void Ask() {
    On(event::Ready{kB, MiB(60)});
    Later(arbiter_.Quantum());
    Said<action::Revoke>(kA);
  }
  std::optional<Instant> Blocks(SessionId id) { return arbiter_.sessions().at(id).blocks_since; }

  const Duration bound_ = arbiter_.config().longest_block;
};

TEST_F(ArbiterBlockTest, AHolderThatIsAlwaysBusyIsToBeEndedAfterTheBound) {
  Ask();
  const Instant asked = now_;
  while (now_ + Seconds(1) < asked + bound_) {
    EXPECT_EQ(Blocks(kA), asked);
    EXPECT_TRUE(Silent<action::Overdue>(kA));
    On(event::Busy{kA, epoch_[kA]});
    Later(Seconds(1));
  }
  Later(Seconds(1));
  Said<action::Overdue>(kA);
  EXPECT_TRUE(Silent<action::Overdue>(kB));
  On(event::SessionGone{kA});
  Said<action::Grant>(kB);
}

TEST_F(ArbiterBlockTest, AHolderThatSaysNothingIsToBeEndedAndItsTimeIsWokenFor) {
  Ask();
  Later(Seconds(100));
  EXPECT_TRUE(arbiter_.sessions().at(kA).stuck);
  EXPECT_EQ(Blocks(kA), now_ - Seconds(100)) << "not only since it is stuck";
  bool woken = false;
  for (const Action& action : said_) {
    const auto* wake = std::get_if<action::WakeAt>(&action);
    woken = woken || (wake != nullptr && wake->instant <= *Blocks(kA) + bound_);
  }
  EXPECT_TRUE(woken);
  Later(bound_ - Seconds(100));
  Said<action::Overdue>(kA);
  Later(bound_ - Seconds(1));
  EXPECT_TRUE(Silent<action::Overdue>(kA));
  Later(Seconds(1));
  Said<action::Overdue>(kA);
}

TEST_F(ArbiterBlockTest, WithoutABoundNoneIsEnded) {
  ArbiterConfig config = Config();
  config.longest_block = Duration();
  Begin(config);
  Add(kA);
  Add(kB);
  Run(kA, MiB(60));
  Ask();
  Later(Seconds(100000));
  EXPECT_TRUE(Blocks(kA).has_value());
  EXPECT_TRUE(Silent<action::Overdue>(kA));
}

TEST_F(ArbiterBlockTest, OneThatGivesInTimeBlocksNoMore) {
  Ask();
  Release(kA);
  EXPECT_EQ(Blocks(kA), std::nullopt);
  Later(Milliseconds(1));
  On(event::Evicted{kA, MiB(40), MiB(20)});
  EXPECT_EQ(Blocks(kA), std::nullopt);
}

TEST_F(ArbiterBlockTest, OneThatKeepsItsMemoryBlocksOnceItIsStuck) {
  Ask();
  Release(kA);
  epoch_[kB] = Said<action::Grant>(kB).epoch;
  EXPECT_FALSE(Silent<action::Evict>(kA));
  Later(arbiter_.config().silence + Seconds(60));
  ASSERT_TRUE(arbiter_.sessions().at(kA).stuck);
  On(event::Released{kB, epoch_[kB]});  // it was given up
  Later(Seconds(1000));                 // no session waits
  On(event::Ready{kB, MiB(60)});
  Later(bound_ - Seconds(1));
  EXPECT_TRUE(Silent<action::Overdue>(kA));
  Later(Seconds(1));
  Said<action::Overdue>(kA);
}

TEST_F(ArbiterBlockTest, NobodyIsBlockedWhereNobodyWaits) {
  Ask();
  Later(Seconds(200));
  On(event::SessionGone{kB});
  Later(Seconds(200));
  Add(kB);
  On(event::Ready{kB, MiB(60)});
  Later(Seconds(200));
  EXPECT_TRUE(Silent<action::Overdue>(kA)) << "the time begins anew";
}

}  // namespace
}  // namespace tandem::core
