#include "src/base/user_directory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace tandem {
namespace {

TEST(UserDirectory, IsTheUsersAloneAndGivesWayToAnotherUsersFile) {
  std::string root = ::testing::TempDir() + "user-XXXXXX";
  ASSERT_NE(mkdtemp(root.data()), nullptr);
  const std::string mine = std::to_string(getuid()), usual = root + "/tmp/tandem-" + mine;
  const std::string of_login = root + "/run/user/" + mine;
  EXPECT_EQ(UserDirectory(getuid(), root), usual);
  std::filesystem::create_directories(of_login);
  EXPECT_EQ(UserDirectory(getuid(), root), usual) << "also during a login";
  std::filesystem::create_directories(usual);
  EXPECT_EQ(UserDirectory(getuid(), root), usual) << "it is this user's";
  // As another user, to whom it is taken.
  const uid_t other = getuid() + 1;
  const std::string theirs = root + "/tmp/tandem-" + std::to_string(other);
  std::filesystem::create_directories(theirs);
  EXPECT_EQ(UserDirectory(other, root), theirs) << "there is no login";
  std::filesystem::create_directories(root + "/run/user/" + std::to_string(other));
  EXPECT_EQ(UserDirectory(other, root), theirs) << "that directory, too, is not the user's own";
  if (getuid() == 0) {
    const std::string login = root + "/run/user/" + std::to_string(other);
    ASSERT_EQ(chown(login.c_str(), other, other), 0);
    EXPECT_EQ(UserDirectory(other, root), login + "/tandem");
  }
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace tandem
