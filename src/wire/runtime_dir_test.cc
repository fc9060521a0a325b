#include "src/wire/runtime_dir.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

namespace tandem::wire {
namespace {

constexpr uid_t kSomebody = 65534;

// A directory of the test's own, and an environment that is put back.
class RuntimeDirTest : public ::testing::Test {
 protected:
  RuntimeDirTest() {
    std::string pattern = ::testing::TempDir() + "wire-XXXXXX";
    dir_ = mkdtemp(pattern.data());
    for (const char* name : {"TANDEM_RUNTIME_DIR", "XDG_RUNTIME_DIR", "TANDEM_GPU"}) {
      const char* const value = std::getenv(name);
      before_[name] = value != nullptr ? std::optional<std::string>(value) : std::nullopt;
      unsetenv(name);
    }
  }
  ~RuntimeDirTest() override {
    for (const auto& [name, value] : before_) {
      if (value) {
        setenv(name.c_str(), value->c_str(), 1);
      } else {
        unsetenv(name.c_str());
      }
    }
    std::filesystem::remove_all(dir_);
  }

  static mode_t ModeOf(const std::string& path) {
    struct stat info {};
    EXPECT_EQ(stat(path.c_str(), &info), 0);
    return info.st_mode & 0777;
  }
  // What `function` gives where another user runs it.
  template <typename Function>
  static auto AsSomebody(Function function) {
    EXPECT_EQ(setresuid(kSomebody, kSomebody, 0), 0);
    auto result = function();
    EXPECT_EQ(setresuid(0, 0, 0), 0);
    return result;
  }

  std::string dir_;
  std::map<std::string, std::optional<std::string>> before_;
};

TEST_F(RuntimeDirTest, MustBeOnesOwn) {
  const auto make = [](const std::string& dir) {
    setenv("TANDEM_RUNTIME_DIR", dir.c_str(), 1);
    return MakeRuntimeDir();
  };
  const std::string own = dir_ + "/own", open = dir_ + "/open", link = dir_ + "/link";
  EXPECT_TRUE(make(own).ok());
  EXPECT_TRUE(make(own).ok());  // it may be there already
  EXPECT_EQ(ModeOf(own), 0700u);
  ASSERT_EQ(mkdir(open.c_str(), 0700), 0);
  ASSERT_EQ(chmod(open.c_str(), 0720), 0);
  EXPECT_EQ(make(open).error().code, ErrorCode::kRefused);
  std::filesystem::create_symlink(own, link);
  EXPECT_EQ(make(link).error().code, ErrorCode::kRefused);
  std::ofstream(dir_ + "/file") << "x";
  EXPECT_EQ(make(dir_ + "/file").error().code, ErrorCode::kRefused);
  EXPECT_EQ(make(dir_ + "/none/below").error().code, ErrorCode::kFailed);
  if (getuid() == 0) {
    ASSERT_EQ(chown(own.c_str(), kSomebody, kSomebody), 0);
    EXPECT_EQ(make(own).error().code, ErrorCode::kRefused);
  }
}

TEST_F(RuntimeDirTest, FilesLieBesideTheSocketWhereTheDirectoryIsOnesOwn) {
  setenv("TANDEM_RUNTIME_DIR", dir_.c_str(), 1);
  EXPECT_EQ(SocketPath(), dir_ + "/tandemd.sock");
  EXPECT_EQ(OwnFile(".log"), dir_ + "/tandemd.log");
  setenv("TANDEM_GPU", "soft", 1);
  EXPECT_EQ(SocketPath(), dir_ + "/tandemd-soft.sock");
  EXPECT_FALSE(RootStartsTheDaemon());
}

TEST_F(RuntimeDirTest, RootsMayBeEverybodysAndFilesThenLieElsewhere) {
  if (getuid() != 0) GTEST_SKIP() << "needs root";
  const std::string all = dir_ + "/all";
  ASSERT_EQ(chmod(dir_.c_str(), 0755), 0);
  setenv("TANDEM_RUNTIME_DIR", all.c_str(), 1);
  setenv("XDG_RUNTIME_DIR", dir_.c_str(), 1);
  ASSERT_TRUE(MakeRuntimeDir().ok());
  EXPECT_FALSE(IsEverybodys(all));
  ASSERT_TRUE(MakeEverybodysDir().ok());
  EXPECT_TRUE(IsEverybodys(all));
  EXPECT_EQ(ModeOf(all), 0711u);
  EXPECT_TRUE(MakeRuntimeDir().ok());
  EXPECT_TRUE(IsEverybodys(all)) << "it stays so";
  EXPECT_FALSE(RootStartsTheDaemon()) << "this is root";
  EXPECT_EQ(OwnDir(), all);
  EXPECT_TRUE(AsSomebody(&RootStartsTheDaemon));
  EXPECT_EQ(AsSomebody(&SocketPath), all + "/tandemd.sock");
  EXPECT_EQ(AsSomebody(&MakeRuntimeDir).error().code, ErrorCode::kRefused);
  EXPECT_EQ(AsSomebody(&MakeEverybodysDir).error().code, ErrorCode::kRefused);
  EXPECT_EQ(AsSomebody(&OwnDir), "/tmp/tandem-" + std::to_string(kSomebody));
  CloseEverybodysDir();
  EXPECT_EQ(ModeOf(all), 0700u);
}

TEST_F(RuntimeDirTest, IsTheSameWithAndWithoutALogin) {
  const std::string without = RuntimeDir();
  setenv("XDG_RUNTIME_DIR", dir_.c_str(), 1);
  EXPECT_EQ(RuntimeDir(), without);
  setenv("TANDEM_RUNTIME_DIR", "/elsewhere", 1);
  EXPECT_EQ(RuntimeDir(), "/elsewhere");
}

// By the mode that `mkdir` gives, say: root did not mean to serve all users there.
TEST_F(RuntimeDirTest, OnlyOneModeMakesItEverybodys) {
  if (getuid() != 0) GTEST_SKIP() << "needs root";
  for (const mode_t mode : {0700, 0755, 0777, 0731, 0710}) {
    ASSERT_EQ(chmod(dir_.c_str(), mode), 0);
    EXPECT_FALSE(IsEverybodys(dir_)) << mode;
  }
  ASSERT_EQ(chmod(dir_.c_str(), 0711), 0);
  EXPECT_TRUE(IsEverybodys(dir_));
  ASSERT_EQ(chown(dir_.c_str(), kSomebody, kSomebody), 0);
  EXPECT_FALSE(IsEverybodys(dir_)) << "root's only";
}

}  // namespace
}  // namespace tandem::wire
