// What a session that waits is told about how long it will.
#include "src/core/arbiter_test.h"

namespace tandem::core {
namespace {

class ForecastTest : public ArbiterTest {
 protected:
  void Want(SessionId id, Bytes need) {
    Add(id);
    On(event::Reserve{id, 1, need});
    On(event::Ready{id, need});
  }
  void Use(const char* policy) {
    ArbiterConfig config = Config();
    config.policy = policy;
    config.turns.Fix(Seconds(10));
    Begin(config);
  }
  double Expected(SessionId id) {
    const auto expected = arbiter_.ExpectedWait(id, now_);
    return expected.has_value() ? expected->seconds() : -1;
  }
};

TEST_F(ForecastTest, CountsTheRestOfTheTurnAndATurnForEachBefore) {
  Use("round-robin");
  Add(kA);
  Run(kA, MiB(90));
  Later(Seconds(4));
  Want(kB, MiB(90));
  Want(kC, MiB(90));
  EXPECT_NEAR(Expected(kB), 6, 0.5);
  EXPECT_NEAR(Expected(kC), 16, 1);
  Later(Seconds(3));
  EXPECT_NEAR(Expected(kB), 3, 0.5);
}

TEST_F(ForecastTest, SaysNothingWhereATurnLastsAsLongAsItsHolderWorks) {
  Use("fcfs");
  Add(kA);
  Run(kA, MiB(90));
  Want(kB, MiB(90));
  EXPECT_EQ(Expected(kB), -1);
  EXPECT_EQ(Expected(kA), -1);  // it waits for nothing
}

TEST_F(ForecastTest, SaysNothingForOneThatIsSuspended) {
  Use("round-robin");
  Add(kA);
  Run(kA, MiB(90));
  Want(kB, MiB(90));
  On(event::Suspended{kB});
  EXPECT_EQ(Expected(kB), -1);
  EXPECT_TRUE(arbiter_.IsHeldBack(kB));
  EXPECT_FALSE(arbiter_.IsHeldBack(kA));
}

TEST_F(ForecastTest, IsTheTimeOfTheCopiesOnceItIsServed) {
  Use("round-robin");
  Add(kA);
  Run(kA, MiB(90));
  Want(kB, MiB(90));
  Later(Seconds(11));
  Release(kA);
  EXPECT_GT(Expected(kB), 0);
  EXPECT_LT(Expected(kB), 1);
  EXPECT_TRUE(arbiter_.IsHeldBack(kB));
}

// It holds the lease all the while, and is at a standstill.
TEST_F(ForecastTest, WaitingForMoreMemoryCountsAsWaiting) {
  Use("round-robin");
  Add(kA);
  Run(kA, MiB(60));
  Add(kB);
  Run(kB, MiB(40));
  On(event::Reserve{kA, 2, MiB(80)});
  On(event::Ready{kA, MiB(80)});
  EXPECT_TRUE(arbiter_.IsHeldBack(kA));
  const Duration before = arbiter_.sessions().at(kA).waited;
  now_ = now_ + Seconds(2);
  On(event::Released{kB, epoch_[kB]});
  On(event::Evicted{kB, Bytes(), MiB(40)});
  EXPECT_FALSE(arbiter_.IsHeldBack(kA));
  EXPECT_EQ(arbiter_.sessions().at(kA).waited - before, Seconds(2));
}

}  // namespace
}  // namespace tandem::core
