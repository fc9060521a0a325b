#include "src/service/spill_quota.h"

#include <gtest/gtest.h>

namespace tandem::service {
namespace {

class SpillQuotaTest : public testing::Test {
 protected:
  void Wait() { now_ = now_ + SpillQuota::kGrace * 2 + Seconds(1); }
  Bytes Measure(Bytes bytes) { return quota_.OnMeasured(bytes, now_); }

  SpillQuota quota_;
  Instant now_{1000000000};
};

TEST_F(SpillQuotaTest, AFileGrowsToItsPromise) {
  EXPECT_EQ(Measure(MiB(1)), Bytes());
  quota_.OnPromise(MiB(10), now_);
  EXPECT_EQ(Measure(MiB(9)), MiB(10));
  Wait();
  EXPECT_EQ(Measure(MiB(10)), MiB(10));
}

TEST_F(SpillQuotaTest, ItKeepsWhatItHoldsWhenThePromiseShrinks) {
  quota_.OnPromise(MiB(10), now_);
  Measure(MiB(8));
  quota_.OnPromise(MiB(2), now_);
  EXPECT_EQ(Measure(MiB(9)), MiB(10));  // the program may not have seen it
  for (int i = 0; i < 3; ++i) {
    Wait();
    EXPECT_EQ(Measure(MiB(9)), i == 0 ? MiB(10) : MiB(9));
  }
  Measure(MiB(3));
  EXPECT_EQ(Measure(MiB(9)), MiB(3));  // what has left does not come back
}

// What exceeds the quota raises it by nothing, however often.
TEST_F(SpillQuotaTest, ExcessIsNotKept) {
  quota_.OnPromise(MiB(10), now_);
  for (int i = 0; i < 5; ++i) {
    Wait();
    EXPECT_EQ(Measure(MiB(12)), MiB(10));
  }
}

}  // namespace
}  // namespace tandem::service
