#include <gtest/gtest.h>

#include "src/base/bytes.h"
#include "src/base/result.h"

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
  for (const char* text : {"", "G", "-1G", "8X", "1e30T", "nan", "8 GiBs", "0x"}) {
    EXPECT_FALSE(ParseBytes(text).ok()) << text;
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

}  // namespace
}  // namespace tandem
