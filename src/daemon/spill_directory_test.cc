#include "src/daemon/spill_directory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

namespace tandem::daemon {
namespace {

TEST(ParseSpillTest, ADirectoryAndASize) {
  const Result<service::Spill> spill = ParseSpill("/var/a:b:64G");
  ASSERT_TRUE(spill.ok());
  EXPECT_EQ(spill->directory, "/var/a:b");
  EXPECT_EQ(spill->limit, GiB(64));
  const Result<service::Spill> relative = ParseSpill("here:1M");
  ASSERT_TRUE(relative.ok());
  EXPECT_EQ(relative->directory, std::filesystem::absolute("here"));
}

TEST(ParseSpillTest, NothingElse) {
  for (const char* text : {"", "64G", "/var", "/var:", ":64G", "/var:much", "/var:-1"}) {
    const Result<service::Spill> spill = ParseSpill(text);
    ASSERT_FALSE(spill.ok()) << text;
    EXPECT_NE(spill.error().message.find("such as /var/tmp:64G"), std::string::npos);
  }
}

class SpillDirectoryTest : public testing::Test {
 protected:
  SpillDirectoryTest() {
    std::string name = testing::TempDir() + "tandem-spill-test-XXXXXX";
    directory_ = mkdtemp(name.data());
  }
  ~SpillDirectoryTest() override { std::filesystem::remove_all(directory_); }

  std::string directory_;
};

TEST_F(SpillDirectoryTest, FilesHaveNoNameAndAreForNobodyElse) {
  const Result<service::Spill> spill = OpenSpillDirectory({directory_, MiB(8)});
  ASSERT_TRUE(spill.ok()) << spill.error().message;
  EXPECT_GT(spill->available(), Bytes());
  const Result<UniqueFd> file = spill->make();
  ASSERT_TRUE(file.ok());
  struct stat status {};
  ASSERT_EQ(fstat(file->get(), &status), 0);
  EXPECT_EQ(status.st_nlink, 0u);
  EXPECT_EQ(status.st_mode & 077, 0u);
  EXPECT_EQ(Bytes(static_cast<uint64_t>(status.st_size)), MiB(8));
  EXPECT_EQ(status.st_blocks, 0);
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

TEST_F(SpillDirectoryTest, ADirectoryThatIsNotThereIsSaidAtTheStart) {
  const Result<service::Spill> spill = OpenSpillDirectory({directory_ + "/no", MiB(8)});
  ASSERT_FALSE(spill.ok());
  EXPECT_NE(spill.error().message.find(directory_ + "/no"), std::string::npos);
}

}  // namespace
}  // namespace tandem::daemon
