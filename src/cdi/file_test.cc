#include "src/cdi/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace tandem::cdi {
namespace {

namespace fs = std::filesystem;

TEST(CdiFileTest, ItIsReplacedAndAllMayReadIt) {
  const fs::path folder = testing::TempDir() + "cdi-" + std::to_string(getpid());
  const std::string file = folder / "new" / "tandem.json";
  const mode_t before = umask(077);
  for (const std::string text : {"{}", "{1}"}) {
    const Status written = WriteSpec(file, text);
    EXPECT_TRUE(written.ok());
    std::ifstream stream(file);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(stream), {}), text);
  }
  umask(before);
  EXPECT_EQ(fs::status(file).permissions(), fs::perms(0644));
  EXPECT_EQ(fs::status(folder / "new").permissions(), fs::perms(0755));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "new"), fs::directory_iterator()), 1);
  fs::remove_all(folder);
}

TEST(CdiFileTest, WhereItCannotBeWrittenNothingIsLeft) {
  const Status written = WriteSpec("/proc/nothing/tandem.json", "{}");
  ASSERT_FALSE(written.ok());
  EXPECT_THAT(written.error().message,
              testing::HasSubstr("cannot write /proc/nothing/tandem.json"));
}

}  // namespace
}  // namespace tandem::cdi
