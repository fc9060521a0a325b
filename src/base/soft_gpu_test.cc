#include "src/base/soft_gpu.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>

namespace tandem {
namespace {

class SoftGpuSettingTest : public ::testing::Test {
 protected:
  SoftGpuSettingTest() {
    std::string pattern = ::testing::TempDir() + "soft-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    file_ = folder_ + "/config/tandem/soft-gpu";
  }
  ~SoftGpuSettingTest() override { std::filesystem::remove_all(folder_); }

  static std::string FileOf(const std::map<std::string, std::string>& variables) {
    return SoftGpuFile([&](const char* name) -> const char* {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  }

  std::string folder_;
  std::string file_;
};

TEST_F(SoftGpuSettingTest, IsReadAsItWasWritten) {
  EXPECT_EQ(ReadSoftGpuSetting(file_).value(), SoftGpuSetting()) << "no file";
  EXPECT_EQ(ReadSoftGpuSetting("").value(), SoftGpuSetting()) << "no home";
  for (const SoftGpuSetting& setting :
       {SoftGpuSetting{GiB(16), 2}, SoftGpuSetting{std::nullopt, 3}, SoftGpuSetting{MiB(130), 1}}) {
    ASSERT_TRUE(WriteSoftGpuSetting(file_, setting).ok());
    EXPECT_EQ(ReadSoftGpuSetting(file_).value(), setting);
  }
  const std::filesystem::directory_iterator folder(folder_ + "/config/tandem");
  EXPECT_EQ(std::distance(begin(folder), end(folder)), 1) << "nothing but the file is left";
}

TEST_F(SoftGpuSettingTest, ALineThatMakesNoSenseNamesTheFile) {
  std::filesystem::create_directories(folder_ + "/config/tandem");
  for (const char* text : {"count=0\n", "count=17\n", "count=2x\n", "memory=much\n", "size=1G\n"}) {
    std::ofstream(file_) << text;
    const auto setting = ReadSoftGpuSetting(file_);
    ASSERT_FALSE(setting.ok()) << text;
    EXPECT_NE(setting.error().message.find(file_), std::string::npos);
  }
}

TEST_F(SoftGpuSettingTest, LiesInTheUsersConfiguration) {
  EXPECT_EQ(FileOf({{"HOME", "/h"}}), "/h/.config/tandem/soft-gpu");
  EXPECT_EQ(FileOf({{"HOME", "/h"}, {"XDG_CONFIG_HOME", "/c"}}), "/c/tandem/soft-gpu");
  EXPECT_EQ(FileOf({{"HOME", "/h"}, {"XDG_CONFIG_HOME", "c"}}), "/h/.config/tandem/soft-gpu");
  EXPECT_EQ(FileOf({}), "");
}

TEST_F(SoftGpuSettingTest, WithoutASizeACardHasAPartOfTheHostsMemory) {
  EXPECT_EQ(SoftGpuMemory(MiB(300), 1), GiB(1));
  EXPECT_EQ(SoftGpuMemory(GiB(3), 1), GiB(1));
  EXPECT_EQ(SoftGpuMemory(MiB(30 * 1024 + 500), 1), GiB(15));
  EXPECT_EQ(SoftGpuMemory(GiB(30), 2), GiB(7));
  EXPECT_EQ(SoftGpuMemory(GiB(2000), 1), GiB(256));
  EXPECT_EQ(SoftGpuMemory(GiB(2000), 3), GiB(85));
  EXPECT_EQ(SoftGpuMemory(Bytes(std::numeric_limits<uint64_t>::max()), 1), GiB(1)) << "unknown";
}

}  // namespace
}  // namespace tandem
