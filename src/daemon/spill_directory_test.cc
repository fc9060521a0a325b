#include "src/daemon/spill_directory.h"

#include <gtest/gtest.h>

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

TEST(FitsOnDiskTest, NoMoreThanTheFileSystemHolds) {
  EXPECT_TRUE(FitsOnDisk({testing::TempDir(), MiB(1)}).ok());
  const Result<service::Spill> spill = FitsOnDisk({testing::TempDir(), GiB(uint64_t{1} << 31)});
  ASSERT_FALSE(spill.ok());
  EXPECT_NE(spill.error().message.find(testing::TempDir()), std::string::npos);
}

}  // namespace
}  // namespace tandem::daemon
