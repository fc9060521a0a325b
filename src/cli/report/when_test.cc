#include "src/cli/report/when.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

#include "src/history/local_time.h"

namespace tandem::cli {
namespace {

constexpr int64_t kNow = 1'764'849'600;  // Thursday, 2025-12-04T12:00:00Z; 13:00 in Berlin

class WhenTest : public testing::Test {
 protected:
  WhenTest() {
    setenv("TZ", "Europe/Berlin", 1);
    tzset();
  }
  // As `tandem` prints it; or the mistake.
  static std::string When(const std::string& text) {
    const auto when = ParseWhen(text, kNow * history::kNsInSecond);
    return when.ok() ? history::LocalTime(*when / history::kNsInSecond) : when.error().message;
  }
};

TEST_F(WhenTest, Ages) {
  EXPECT_EQ(When("now"), "2025-12-04T13:00:00+01:00");
  EXPECT_EQ(When("30m"), "2025-12-04T12:30:00+01:00");
  EXPECT_EQ(When("90min"), "2025-12-04T11:30:00+01:00");
  EXPECT_EQ(When("1.5h"), "2025-12-04T11:30:00+01:00");
  EXPECT_EQ(When("7d"), "2025-11-27T13:00:00+01:00");
  EXPECT_EQ(When("4w"), "2025-11-06T13:00:00+01:00");
}

TEST_F(WhenTest, DaysBeginAtMidnightHere) {
  EXPECT_EQ(When("today"), "2025-12-04T00:00:00+01:00");
  EXPECT_EQ(When("yesterday"), "2025-12-03T00:00:00+01:00");
  EXPECT_EQ(When("monday"), "2025-12-01T00:00:00+01:00");
  EXPECT_EQ(When("Friday"), "2025-11-28T00:00:00+01:00") << "the last one";
  EXPECT_EQ(When("thursday"), "2025-12-04T00:00:00+01:00") << "today";
}

TEST_F(WhenTest, Dates) {
  EXPECT_EQ(When("2025-11-25"), "2025-11-25T00:00:00+01:00");
  EXPECT_EQ(When("2025-07-25"), "2025-07-25T00:00:00+02:00");
  EXPECT_EQ(When("2025-11-25T07:00"), "2025-11-25T07:00:00+01:00");
  EXPECT_EQ(When("2025-11-25 07:00:30"), "2025-11-25T07:00:30+01:00");
  EXPECT_EQ(When("2025-11-25T07:00:00Z"), "2025-11-25T08:00:00+01:00");
  EXPECT_EQ(When("2025-11-25T07:00:00.123456Z"), "2025-11-25T08:00:00+01:00");
  EXPECT_EQ(When("2025-11-25T07:00:00-05:30"), "2025-11-25T13:30:00+01:00");
}

TEST_F(WhenTest, MistakesSayWhatIsAllowed) {
  for (const char* text :
       {"", "soon", "7", "7y", "-7d", "1e300d", "nan", "2025-02-31", "2025-13-01", "2025-11-25T",
        "2025-11-25T25:00", "2025-11-25T07:00+1", "2025-11-25T07:00Zulu", "2025-11-25Tx",
        "9999-01-01", "0x7d", "2025-11-25T07:00:00."}) {
    EXPECT_NE(When(text).find("is not a time; write for example 30m, 12h, 7d, today"),
              std::string::npos)
        << text << ": " << When(text);
  }
}

}  // namespace
}  // namespace tandem::cli
