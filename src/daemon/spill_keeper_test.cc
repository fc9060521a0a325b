#include "src/daemon/spill_keeper.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace tandem::daemon {
namespace {

constexpr service::SpillOwner kOwner{11, 0};

class SpillKeeperTest : public testing::Test {
 protected:
  SpillKeeperTest() {
    std::string name = testing::TempDir() + "tandem-spill-test-XXXXXX";
    directory_ = mkdtemp(name.data());
    keeper_.emplace(directory_, MiB(8));
  }
  ~SpillKeeperTest() override { std::filesystem::remove_all(directory_); }

  UniqueFd Make(const service::SpillOwner& owner = kOwner) {
    Result<UniqueFd> file = keeper_->Make(owner, geteuid(), getegid());
    EXPECT_TRUE(file.ok()) << file.error().message;
    return file.ok() ? *std::move(file) : UniqueFd();
  }
  static void Take(const UniqueFd& file, Bytes bytes) {
    EXPECT_EQ(fallocate(file.get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes.count)), 0);
  }
  static struct stat StatusOf(const UniqueFd& file) {
    struct stat status {};
    EXPECT_EQ(fstat(file.get(), &status), 0);
    return status;
  }

  std::string directory_;
  std::optional<SpillKeeper> keeper_;
};

TEST_F(SpillKeeperTest, FilesHaveNoNameAndAreForNobodyElse) {
  ASSERT_TRUE(keeper_->Try().ok());
  EXPECT_GT(keeper_->Available(), Bytes());
  const UniqueFd file = Make();
  const struct stat status = StatusOf(file);
  EXPECT_EQ(status.st_nlink, 0u);
  EXPECT_EQ(status.st_mode & 077, 0u);
  EXPECT_EQ(Bytes(static_cast<uint64_t>(status.st_size)), MiB(8));
  EXPECT_EQ(status.st_blocks, 0);
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
  const std::string name = directory_ + "/name";
  const std::string here = "/proc/self/fd/" + std::to_string(file.get());
  EXPECT_NE(linkat(AT_FDCWD, here.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW), 0);
}

TEST_F(SpillKeeperTest, ADirectoryThatIsNotThereIsSaid) {
  const SpillKeeper keeper(directory_ + "/no", MiB(8));
  const Status tried = keeper.Try();
  ASSERT_FALSE(tried.ok());
  EXPECT_NE(tried.error().message.find(directory_ + "/no"), std::string::npos);
}

// So that its disk quota counts, and not root's.
TEST_F(SpillKeeperTest, AFileBelongsToItsProcessesUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to give files away";
  Result<UniqueFd> file = keeper_->Make(kOwner, 62011, 62012);
  if (!file.ok()) GTEST_SKIP() << "no such users here: " << file.error().message;
  EXPECT_EQ(StatusOf(*file).st_uid, 62011u);
  EXPECT_EQ(StatusOf(*file).st_gid, 62012u);
}

TEST_F(SpillKeeperTest, WhatFilesHoldIsCountedForTheirSession) {
  const UniqueFd first = Make(), other = Make({12, 1});
  Take(first, MiB(2));
  Take(other, MiB(3));
  const UniqueFd second = Make();  // after it has lost its connection, with the first in use
  Take(second, MiB(1));
  service::SpillSizes sizes = keeper_->Look();
  EXPECT_EQ(sizes[kOwner], MiB(3));
  EXPECT_EQ(sizes[(service::SpillOwner{12, 1})], MiB(3));
}

TEST_F(SpillKeeperTest, FilesBeforeTheLastAreKeptAsLongAsTheyAreOpen) {
  UniqueFd first = Make();
  const UniqueFd second = Make();
  keeper_->Look();
  EXPECT_EQ(keeper_->files(), 2u);
  first.Reset();
  keeper_->Look();
  EXPECT_EQ(keeper_->files(), 1u);
}

// Its descriptor may have gone to another process.
TEST_F(SpillKeeperTest, AFileHoldsNothingAfterItsProcess) {
  UniqueFd file = Make();
  Take(file, MiB(2));
  keeper_->End(kOwner.pid);
  EXPECT_EQ(StatusOf(file).st_blocks, 0);
  Take(file, MiB(2));
  EXPECT_EQ(keeper_->Look().count(kOwner), 0u);
  EXPECT_EQ(StatusOf(file).st_blocks, 0);
  file.Reset();
  keeper_->Look();
  EXPECT_EQ(keeper_->files(), 0u);
}

TEST_F(SpillKeeperTest, ASessionHasNoMoreThanAFew) {
  std::vector<UniqueFd> files;
  for (size_t i = 0; i < SpillKeeper::kMostOfSession; ++i) files.push_back(Make());
  EXPECT_FALSE(keeper_->Make(kOwner, geteuid(), getegid()).ok());
  files.front().Reset();
  Make();
}

}  // namespace
}  // namespace tandem::daemon
