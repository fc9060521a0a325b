#include "src/service/log_rate.h"

#include <gtest/gtest.h>

namespace tandem::service {
namespace {

TEST(LogRateTest, AFloodLeavesOtherUsersLinesAlone) {
  LogRate rate;
  Instant now = Instant() + Seconds(1000);
  for (int i = 0; i < LogRate::kBurst; ++i) EXPECT_EQ(rate.Take(1000, now), 0u);
  for (int i = 0; i < 500; ++i) EXPECT_FALSE(rate.Take(1000, now).has_value());
  EXPECT_EQ(rate.Take(2000, now), 0u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(rate.Take(0, now), 0u);
  now = now + LogRate::kPause;
  EXPECT_EQ(rate.Take(1000, now), 500u);  // and it is said how many are missing
  EXPECT_FALSE(rate.Take(1000, now).has_value());
  now = now + LogRate::kPause * LogRate::kBurst;
  EXPECT_EQ(rate.Take(1000, now), 1u);
  for (int i = 1; i < LogRate::kBurst; ++i) EXPECT_EQ(rate.Take(1000, now), 0u);
  EXPECT_FALSE(rate.Take(1000, now).has_value());
}

}  // namespace
}  // namespace tandem::service
