// When an idle holder gives way.
#include "src/core/arbiter_test.h"

namespace tandem::core {
namespace {

TEST_F(ArbiterTest, AnIdleHolderGivesWayOnceItsPauseIsWorthIt) {
  Add(kA);
  Add(kB);
  Run(kA, MiB(100));
  On(event::Ready{kB, MiB(20)});
  const Duration cost = arbiter_.SwitchEstimate();
  now_ = now_ + Milliseconds(10);
  On(event::Idle{kA, epoch_[kA]});
  EXPECT_TRUE(Silent<action::Revoke>(kA));
  Later(cost * 2 - Microseconds(1));
  EXPECT_TRUE(Silent<action::Revoke>(kA));
  Later(Microseconds(1));
  EXPECT_FALSE(Silent<action::Revoke>(kA));
}

TEST_F(ArbiterTest, AnIdleHolderKnownForLongPausesGivesWayAfterAMoment) {
  Add(kA);
  Add(kB);
  Run(kA, MiB(100));
  On(event::Ready{kB, MiB(100)});
  for (int i = 0; i < 4; ++i) {  // pauses too short to be worth a switch, for now
    On(event::Idle{kA, epoch_[kA]});
    now_ = now_ + Milliseconds(90);
    On(event::Active{kA, epoch_[kA]});
    EXPECT_TRUE(Silent<action::Revoke>(kA));
  }
  On(event::SessionGone{kB});
  Add(kC);
  On(event::Idle{kA, epoch_[kA]});
  On(event::Ready{kC, MiB(20)});  // costs 21 ms, twice 42: less than 90
  EXPECT_TRUE(Silent<action::Revoke>(kA));
  Later(arbiter_.SwitchEstimate() * 2 / 22);  // sqrt(1 / 128 / 4) of the price
  EXPECT_FALSE(Silent<action::Revoke>(kA));
}

// It was held up for a moment, and the Revoke came too late.
TEST_F(ArbiterTest, AMomentThatHasEndedIsKnownAsOneThoughTheLeaseIsLost) {
  Add(kA);
  Add(kB);
  Run(kA, MiB(100));
  On(event::Ready{kB, MiB(20)});
  On(event::Idle{kA, epoch_[kA]});
  Later(arbiter_.SwitchEstimate() * 2);
  ASSERT_FALSE(Silent<action::Revoke>(kA));
  now_ = now_ + Milliseconds(1);
  On(event::Active{kA, epoch_[kA]});
  EXPECT_FALSE(arbiter_.sessions().at(kA).idle);
  now_ = now_ + Milliseconds(100);
  Release(kA);
  On(event::Ready{kA, MiB(100)});  // what was left of its work
  const Duration price = Milliseconds(50);
  EXPECT_GT(arbiter_.sessions().at(kA).pauses.Patience(price), price / 2);
}

// As a trainer whose work leaves the card idle for occasional instants before it pauses.
TEST_F(ArbiterTest, InstantsOfIdlenessDoNotHideThePausesAmongThem) {
  Add(kA);
  Add(kB);
  Run(kA, MiB(100));
  const auto pause = [&](Duration duration) {
    On(event::Idle{kA, epoch_[kA]});
    now_ = now_ + duration;
    On(event::Active{kA, epoch_[kA]});
  };
  for (int burst = 0; burst < 4; ++burst) {
    for (int i = 0; i < 9; ++i) pause(Microseconds(300));
    pause(Milliseconds(90));
  }
  On(event::Ready{kB, MiB(20)});
  On(event::Idle{kA, epoch_[kA]});
  // The assumed one, a 128th of the price, is the longest that is waited for: sqrt(1 / 128 / 4).
  const Duration patience = arbiter_.SwitchEstimate() * 2 / 23;
  Later(patience);
  EXPECT_TRUE(Silent<action::Revoke>(kA));
  Later(patience / 10);
  EXPECT_FALSE(Silent<action::Revoke>(kA));
}

}  // namespace
}  // namespace tandem::core
