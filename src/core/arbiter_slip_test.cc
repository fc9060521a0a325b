// Sessions that slip in beside the holders, from behind those that wait for a turn to end.
#include "src/core/arbiter_test.h"

namespace tandem::core {
namespace {

TEST_F(ArbiterTest, WhoeverSlipsInDoesNotDelayTheFirstInLine) {
  Add(kA);
  Add(kB);
  Add(kC);
  Run(kA, MiB(60));
  On(event::Ready{kB, MiB(90)});
  const Instant turn_ends = now_ + arbiter_.Quantum();
  Later(Milliseconds(100));
  Run(kC, MiB(30));
  now_ = turn_ends;
  On(event::Tick{});
  EXPECT_FALSE(Silent<action::Revoke>(kA));
  EXPECT_FALSE(Silent<action::Revoke>(kC));
}

TEST_F(ArbiterTest, LateInATurnOnlySessionsThatKeepTheirMemorySlipIn) {
  Add(kC);
  Run(kC, MiB(30));
  Release(kC);
  Add(kA);
  Run(kA, MiB(60));
  Add(kB);
  On(event::Ready{kB, MiB(90)});
  const SessionId d{4};
  Add(d);
  On(event::Reserve{d, 1, MiB(5)});
  Later(arbiter_.Quantum() - Milliseconds(10));
  On(event::Ready{d, MiB(5)});
  EXPECT_TRUE(Silent<action::Grant>(d));
  On(event::Ready{kC, MiB(30)});
  EXPECT_FALSE(Silent<action::Grant>(kC));
}

}  // namespace
}  // namespace tandem::core
