#include "src/history/state_dir.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace tandem::history {
namespace {

class StateDirTest : public ::testing::Test {
 protected:
  StateDirTest() {
    for (const char* name : {"TANDEM_STATE_DIR", "TANDEM_RUNTIME_DIR", "TANDEM_GPU"}) {
      unsetenv(name);
    }
    char name[] = "/tmp/tandem-state-dir-XXXXXX";
    dir_ = mkdtemp(name);
  }
  ~StateDirTest() override {
    unsetenv("TANDEM_STATE_DIR");
    unsetenv("TANDEM_RUNTIME_DIR");
    unsetenv("TANDEM_GPU");
    std::filesystem::remove_all(dir_);
  }
  std::string dir_;
};

TEST_F(StateDirTest, AVariableNamesIt) {
  setenv("TANDEM_STATE_DIR", "/s", 1);
  setenv("TANDEM_RUNTIME_DIR", "/r", 1);
  EXPECT_EQ(StateDir(), "/s");
}

// Daemons of different directories are different daemons.
TEST_F(StateDirTest, ADaemonOfAnotherDirectoryKeepsItsOwn) {
  setenv("TANDEM_RUNTIME_DIR", "/r", 1);
  EXPECT_EQ(StateDir(), "/r/history");
}

TEST_F(StateDirTest, EachKindOfGpuHasItsFile) {
  setenv("TANDEM_STATE_DIR", "/s", 1);
  EXPECT_EQ(EventsFile(), "/s/events.jsonl");
  setenv("TANDEM_GPU", "soft", 1);
  EXPECT_EQ(EventsFile(), "/s/events-soft.jsonl");
}

TEST_F(StateDirTest, AllMayPassThroughWhereAllMayRead) {
  setenv("TANDEM_STATE_DIR", (dir_ + "/a/b").c_str(), 1);
  ASSERT_TRUE(MakeStateDir(true).ok());
  struct stat info;
  ASSERT_EQ(stat((dir_ + "/a/b").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0711u);
  ASSERT_TRUE(MakeStateDir(false).ok());
  ASSERT_EQ(stat((dir_ + "/a/b").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(StateDirTest, AFileInItsPlaceIsSaid) {
  setenv("TANDEM_STATE_DIR", "/dev/null/tandem", 1);
  const Status made = MakeStateDir(false);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("/dev/null/tandem"), std::string::npos);
}

}  // namespace
}  // namespace tandem::history
