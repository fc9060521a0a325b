#include "src/core/share_text.h"

#include <gtest/gtest.h>

namespace tandem::core {
namespace {

TEST(ShareTextTest, ReadsWeightsAndParts) {
  EXPECT_EQ(ParseShare("2"), (Share{2, {}}));
  EXPECT_EQ(ParseShare("0.001"), (Share{0.001, {}}));
  EXPECT_EQ(ParseShare("30%"), (Share{1, 0.3}));
  EXPECT_EQ(ParseShare("100%"), (Share{1, 1.0}));
}

TEST(ShareTextTest, RefusesAllElse) {
  for (const char* text : {"", "%", "0", "-1", "1001", "0.0001", "101%", "0.05%", "2x", " 2", "nan",
                           "inf", "30 %", "0x2"}) {
    EXPECT_EQ(ParseShare(text), std::nullopt) << text;
  }
  EXPECT_NE(NoShareText("0").find("\"0\" is no share"), std::string::npos);
}

TEST(ShareTextTest, WritesWhatItReads) {
  for (const char* text : {"2", "0.5", "30%", "0.1%"}) {
    EXPECT_EQ(ShareText(*ParseShare(text)), text);
  }
}

}  // namespace
}  // namespace tandem::core
