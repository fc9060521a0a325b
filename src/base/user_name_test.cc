#include "src/base/user_name.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(UserNameTest, NamesAndNumbersLeadToEachOther) {
  EXPECT_EQ(UserNameOf(0), "root");
  const Result<unsigned> root = UserNumberOf("root");
  ASSERT_TRUE(root.ok());
  EXPECT_EQ(*root, 0u);
}

TEST(UserNameTest, ANumberNeedsNoName) {
  constexpr unsigned kNobodys = 4000000001;
  EXPECT_EQ(UserNameOf(kNobodys), "4000000001");
  const Result<unsigned> number = UserNumberOf("4000000001");
  ASSERT_TRUE(number.ok());
  EXPECT_EQ(*number, kNobodys);
}

TEST(UserNameTest, AnUnknownUserIsSaid) {
  for (const char* text : {"", "no-such-user", "-1", "12x", "99999999999"}) {
    const Result<unsigned> number = UserNumberOf(text);
    ASSERT_FALSE(number.ok()) << text;
    EXPECT_EQ(number.error().message, "there is no user called \"" + std::string(text) + "\"");
  }
}

}  // namespace
}  // namespace tandem
