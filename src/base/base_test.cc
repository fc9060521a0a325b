#include <gtest/gtest.h>

#include "src/base/bytes.h"
#include "src/base/duration.h"
#include "src/base/ranges.h"
#include "src/base/result.h"
#include "src/base/text.h"

namespace tandem {
namespace {

TEST(BytesTest, ParsesWhatPeopleWrite) {
  EXPECT_EQ(ParseBytes("4096").value(), Bytes(4096));
  EXPECT_EQ(ParseBytes("8G").value(), GiB(8));
  EXPECT_EQ(ParseBytes("8 GiB").value(), GiB(8));
  EXPECT_EQ(ParseBytes("1.5g").value(), MiB(1536));
  EXPECT_EQ(ParseBytes("64kb").value(), KiB(64));
}

TEST(BytesTest, RefusesWhatIsNoSize) {
  for (const char* text :
       {"", "G", "-1G", "8X", "1e30T", "nan", "8 GiBs", "0x", "0x10", "1e3M", "1.2.3G", ".5G"}) {
    EXPECT_FALSE(ParseBytes(text).ok()) << text;
  }
}

TEST(BytesTest, WhatAPersonTypesHasAUnit) {
  EXPECT_EQ(ParseSize("8G").value(), GiB(8));
  EXPECT_EQ(ParseSize("4096B").value(), Bytes(4096));
  EXPECT_EQ(ParseSize("0").value(), Bytes());
  for (const char* text : {"8", "8 ", "1.5", "4096"}) {
    EXPECT_NE(ParseSize(text).error().message.find("has no unit"), std::string::npos) << text;
  }
  EXPECT_FALSE(ParseSize("lots").ok());
}

TEST(DurationTest, ParsesWhatPeopleWrite) {
  EXPECT_EQ(ParseDuration("5s").value(), Seconds(5));
  EXPECT_EQ(ParseDuration("1.5ms").value(), Microseconds(1500));
  EXPECT_EQ(ParseDuration("5m").value(), Seconds(300));
  EXPECT_EQ(ParseDuration("1.5min").value(), Seconds(90));
  EXPECT_EQ(ParseDuration("1h").value(), Seconds(3600));
  EXPECT_EQ(ParseDuration("0").value(), Duration());
  for (const char* text : {"", "5", "s", "-1s", "5 min", "5d", "1e300s"}) {
    EXPECT_FALSE(ParseDuration(text).ok()) << text;
  }
}

TEST(BytesTest, FormatsForPeople) {
  EXPECT_EQ(FormatBytes(Bytes(0)), "0 B");
  EXPECT_EQ(FormatBytes(MiB(180)), "180 MiB");
  EXPECT_EQ(FormatBytes(MiB(1536)), "1.5 GiB");
}

Result<int> Half(int n) {
  if (n % 2 != 0) return Error{ErrorCode::kInvalid, "odd"};
  return n / 2;
}

Result<int> Quarter(int n) {
  ASSIGN_OR_RETURN(const int half, Half(n));
  ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}

Status CheckQuarter(int n) {
  TRY(Quarter(n));
  return {};
}

TEST(ResultTest, CarriesValuesAndErrorsUp) {
  EXPECT_EQ(Quarter(8).value(), 2);
  EXPECT_EQ(Quarter(6).error().message, "odd");
  EXPECT_TRUE(CheckQuarter(4).ok());
  EXPECT_EQ(CheckQuarter(2).error().code, ErrorCode::kInvalid);
}

TEST(EscapeTextTest, ShowsWhatTerminalsObey) {
  EXPECT_EQ(EscapeText("größer → 7"), "größer → 7");
  EXPECT_EQ(EscapeText("a\x1b[2Jb\nc\x7f"), "a\\x1b[2Jb\\x0ac\\x7f");
  EXPECT_EQ(EscapeText("\xc2\x9b"
                       "31m"),
            "\\xc2\\x9b31m");  // the C1 form of ESC [
  EXPECT_EQ(EscapeText("\xe2\x80\xae"
                       "x"),
            "\\xe2\\x80\\xaex");                                      // right-to-left override
  EXPECT_EQ(EscapeText("\xd8\x9c"), "\\xd8\\x9c");                    // U+061C turns the direction
  EXPECT_EQ(EscapeText("\xef\xbb\xbf"), "\\xef\\xbb\\xbf");           // U+FEFF is not seen
  EXPECT_EQ(EscapeText("\xf3\xa0\x81\x81"), "\\xf3\\xa0\\x81\\x81");  // nor is a tag
  EXPECT_EQ(EscapeText("\xe0\x80\x9b"), "\\xe0\\x80\\x9b");           // overlong
  EXPECT_EQ(EscapeText("\xc0\x9b"), "\\xc0\\x9b");                    // too
  EXPECT_EQ(EscapeText("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // a surrogate
  EXPECT_EQ(EscapeText("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond Unicode
  EXPECT_EQ(EscapeText("\xf0\x9f\x98\x80"), "\xf0\x9f\x98\x80");      // an emoji
  EXPECT_EQ(EscapeText("a\xcc\x81"), "a\xcc\x81");                    // one accent
  EXPECT_EQ(EscapeText("a\xcc\x81\xcc\x81\xcc\x81\xcc\x81"),          // a heap of them
            "a\xcc\x81\xcc\x81\xcc\x81\\xcc\\x81");
  EXPECT_EQ(EscapeText("\xff\xc3"), "\\xff\\xc3");  // not UTF-8
  EXPECT_EQ(EscapeText("ab\x1b"
                       "cd",
                       5),
            "ab\\x1b");
}

TEST(RangeAllocatorTest, MergesWhatComesBack) {
  RangeAllocator ranges(1000, 100);
  const auto one = ranges.Take(30, 1), two = ranges.Take(30, 1), three = ranges.Take(40, 1);
  ASSERT_TRUE(one && two && three);
  EXPECT_FALSE(ranges.Take(1, 1).has_value());
  EXPECT_TRUE(ranges.Give(*one, 30));
  EXPECT_TRUE(ranges.Give(*three, 40));
  EXPECT_FALSE(ranges.Take(50, 1).has_value());
  EXPECT_EQ(ranges.TakePieces(70).size(), 2u);
  EXPECT_TRUE(ranges.TakePieces(1).empty());
  EXPECT_TRUE(ranges.Give(*one, 30));
  EXPECT_TRUE(ranges.Give(*three, 40));
  EXPECT_TRUE(ranges.Give(*two, 30));
  EXPECT_FALSE(ranges.Give(*two, 30));
  EXPECT_FALSE(ranges.Give(*one + 29, 2));
  EXPECT_EQ(ranges.Take(64, 64), 1024u);
}

}  // namespace
}  // namespace tandem
