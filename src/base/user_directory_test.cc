#include "src/base/user_directory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace tandem {
namespace {

class UserDirectoryTest : public ::testing::Test {
 protected:
  UserDirectoryTest() { EXPECT_NE(mkdtemp(root_.data()), nullptr); }
  ~UserDirectoryTest() override { std::filesystem::remove_all(root_); }

  void Make(const std::string& path) const { std::filesystem::create_directories(root_ + path); }
  std::string Of(uid_t uid) const { return UserDirectory(uid, root_).substr(root_.size()); }

  const uid_t me_ = getuid(), other_ = me_ + 1;  // this process makes files of its own user only
  const std::string usual_ = "/tmp/tandem-" + std::to_string(me_);
  const std::string others_usual_ = "/tmp/tandem-" + std::to_string(other_);

  const std::string& root() const { return root_; }

 private:
  std::string root_ = ::testing::TempDir() + "user-XXXXXX";
};

TEST_F(UserDirectoryTest, IsInTmpDuringALoginAndAfterIt) {
  EXPECT_EQ(Of(me_), usual_);
  Make("/run/user/" + std::to_string(me_));
  EXPECT_EQ(Of(me_), usual_);
  Make(usual_);
  EXPECT_EQ(Of(me_), usual_);
}

TEST_F(UserDirectoryTest, StaysWhereTheUserHasOne) {
  Make(usual_ + ".2");
  EXPECT_EQ(Of(me_), usual_ + ".2") << "also after another user's directory of the usual name went";
}

TEST_F(UserDirectoryTest, GivesWayToAnotherUsersDirectory) {
  Make(others_usual_);
  EXPECT_EQ(Of(other_), others_usual_ + ".1") << "there is no login";
  Make("/run/user/" + std::to_string(other_));
  EXPECT_EQ(Of(other_), others_usual_ + ".1") << "that directory, too, is another user's";
  Make(others_usual_ + ".1");
  EXPECT_EQ(Of(other_), others_usual_ + ".2");
  for (int i = 2; i <= 8; ++i) Make(others_usual_ + "." + std::to_string(i));
  EXPECT_EQ(Of(other_), others_usual_) << "all are taken: the error names this one";
}

TEST_F(UserDirectoryTest, TakesTheLoginsWhereTheUsualOneIsTaken) {
  if (me_ != 0) GTEST_SKIP() << "only root can make directories of other users";
  const std::string login = "/run/user/" + std::to_string(other_);
  Make(others_usual_);
  Make(login);
  ASSERT_EQ(chown((root() + login).c_str(), other_, other_), 0);
  EXPECT_EQ(Of(other_), login + "/tandem");
}

}  // namespace
}  // namespace tandem
