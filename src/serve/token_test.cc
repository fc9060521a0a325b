#include "src/serve/token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace tandem::serve {
namespace {

using ::testing::HasSubstr;

class TokenTest : public testing::Test {
 protected:
  TokenTest() {
    std::string name = testing::TempDir() + "tokenXXXXXX";
    root_ = mkdtemp(name.data());
    file_ = root_ + "/token";
  }
  ~TokenTest() override { std::filesystem::remove_all(root_); }

  std::string Refusal(const std::string& text, mode_t mode) {
    std::ofstream(file_) << text;
    chmod(file_.c_str(), mode);
    const auto token = ReadOrMakeToken(file_);
    return token.ok() ? "" : token.error().message;
  }

  std::string root_, file_;
};

TEST_F(TokenTest, IsMadeOnceForItsOwnerAlone) {
  const auto made = ReadOrMakeToken(file_);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->size(), 64U);
  struct stat info;
  ASSERT_EQ(stat(file_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600U);
  EXPECT_EQ(ReadOrMakeToken(file_).value(), *made);
  EXPECT_NE(ReadOrMakeToken(root_ + "/another").value(), *made);
}

TEST_F(TokenTest, AFileThatOthersReadOrThatHasNoTokenIsRefused) {
  const std::string token(20, 'a');
  EXPECT_EQ(Refusal(token + "\n", 0600), "");
  EXPECT_EQ(Refusal(token, 0400), "");
  EXPECT_THAT(Refusal(token, 0640), HasSubstr("chmod 600"));
  EXPECT_THAT(Refusal(token, 0604), HasSubstr("chmod 600"));
  EXPECT_THAT(Refusal("", 0600), HasSubstr("has no token"));
  EXPECT_THAT(Refusal("short", 0600), HasSubstr("has no token"));
  EXPECT_THAT(Refusal(token + " " + token, 0600), HasSubstr("has no token"));
  EXPECT_THAT(Refusal(std::string(5000, 'a'), 0600), HasSubstr("has no token"));
  EXPECT_THAT(ReadOrMakeToken(root_).error().message, HasSubstr("is no file"));
  EXPECT_THAT(ReadOrMakeToken(root_ + "/no/token").error().message, HasSubstr("cannot make"));
}

TEST(SameTokenTest, OnlyTheWholeTokenIsTheSame) {
  EXPECT_TRUE(SameToken("secret", "secret"));
  for (const char* given : {"", "s", "secre", "secretx", "Secret", "secrex", "secretsecret"}) {
    EXPECT_FALSE(SameToken(given, "secret")) << given;
  }
  EXPECT_FALSE(SameToken("", ""));
  EXPECT_FALSE(SameToken("a", ""));
}

}  // namespace
}  // namespace tandem::serve
