// How long sessions and GPUs were in use.
#include "src/core/running_time.h"

#include "src/core/arbiter_test.h"

namespace tandem::core {
namespace {

class UseTest : public ArbiterTest {
 protected:
  void Pass(Duration duration) { now_ = now_ + duration; }
  Duration ActiveOf(SessionId id) { return arbiter_.sessions().at(id).active.Until(now_); }
  Duration Busy() { return arbiter_.busy().Until(now_); }
  Duration Held() { return arbiter_.held().Until(now_); }
};

TEST(RunningTimeTest, AddsTheStretchesInWhichItWasSo) {
  RunningTime time;
  EXPECT_EQ(time.Until(Instant(70)), Duration());
  time.Set(true, Instant(10));
  time.Set(true, Instant(15));
  EXPECT_EQ(time.Until(Instant(30)), Duration(20));
  time.Set(false, Instant(40));
  time.Set(false, Instant(45));
  EXPECT_EQ(time.Until(Instant(90)), Duration(30));
  time.Set(true, Instant(100));
  EXPECT_EQ(time.Until(Instant(101)), Duration(31));
}

TEST_F(UseTest, APauseIsHeldAndNotActive) {
  Add(kA);
  Pass(Seconds(1));
  Run(kA, MiB(10));
  Pass(Seconds(2));
  On(event::Idle{kA, epoch_[kA]});
  Pass(Seconds(4));
  On(event::Active{kA, epoch_[kA]});
  Pass(Seconds(8));
  Release(kA);
  Pass(Seconds(16));
  EXPECT_EQ(ActiveOf(kA), Seconds(10));
  EXPECT_EQ(Busy(), Seconds(10));
  EXPECT_EQ(Held(), Seconds(14));
}

TEST_F(UseTest, WhileMemoryIsComingBackItIsHeldAndNotActive) {
  Add(kA);
  On(event::Reserve{kA, 1, MiB(10)});
  On(event::Ready{kA, MiB(10)});
  Pass(Seconds(3));
  On(event::Running{kA, Said<action::Grant>(kA).epoch, {}});
  EXPECT_EQ(Busy(), Duration());
  EXPECT_EQ(Held(), Seconds(3));
}

TEST_F(UseTest, AGpuIsBusyOnceHoweverManyWork) {
  Add(kA);
  Add(kB);
  Run(kA, MiB(10));
  Pass(Seconds(1));
  Run(kB, MiB(10));
  Pass(Seconds(2));
  On(event::Idle{kA, epoch_[kA]});
  Pass(Seconds(4));
  On(event::SessionGone{kB});
  Pass(Seconds(8));
  EXPECT_EQ(ActiveOf(kA), Seconds(3));
  EXPECT_EQ(Busy(), Seconds(7));
  EXPECT_EQ(Held(), Seconds(15));
}

// It holds the GPU, and no session knows what it does.
TEST_F(UseTest, AHolderThatDoesNotAnswerIsNotActive) {
  Add(kA);
  Add(kB);
  Run(kA, MiB(100));
  On(event::Ready{kB, MiB(100)});
  Later(Seconds(1));
  const Duration before = Busy();
  for (int i = 0; i < 100 && !arbiter_.sessions().at(kA).stuck; ++i) Later(Seconds(1));
  ASSERT_TRUE(arbiter_.sessions().at(kA).stuck);
  const Duration at_the_end = Busy();
  Pass(Seconds(50));
  EXPECT_GE(at_the_end, before);
  EXPECT_EQ(Busy(), at_the_end);
  EXPECT_EQ(ActiveOf(kA), at_the_end);
  EXPECT_EQ(Held(), now_ - Instant(1000000000));
}

}  // namespace
}  // namespace tandem::core
