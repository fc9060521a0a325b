#include "src/history/local_time.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

namespace tandem::history {
namespace {

void TimeZone(const char* name) {
  setenv("TZ", name, 1);
  tzset();
}

TEST(LocalTimeTest, SaysTimesWithTheirOffset) {
  TimeZone("Europe/Berlin");
  EXPECT_EQ(LocalTime(1'764'547'200), "2025-12-01T01:00:00+01:00");
  TimeZone("America/St_Johns");
  EXPECT_EQ(LocalTime(1'764'547'200), "2025-11-30T20:30:00-03:30");
  EXPECT_EQ(UtcTime(1'764'547'200'123'456'789), "2025-12-01T00:00:00.123456Z");
  EXPECT_EQ(UtcTime(-1), "1969-12-31T23:59:59.999999Z");
}

TEST(LocalTimeTest, DaysBeginAtMidnightAcrossSummerTime) {
  TimeZone("Europe/Berlin");
  const int64_t october = 1'761'429'600;  // 2025-10-26T00:00:00+02:00
  EXPECT_EQ(DayBegin(october + 20 * kHour), october);
  EXPECT_EQ(DayBegin(october, 1), october + 25 * kHour);
  EXPECT_EQ(DayBegin(october, -1), october - 24 * kHour);
}

}  // namespace
}  // namespace tandem::history
