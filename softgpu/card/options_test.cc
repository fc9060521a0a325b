#include "softgpu/card/options.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

namespace tandem::soft {
namespace {

Result<Options> Parse(const std::map<std::string, std::string>& variables) {
  return ParseOptions(
      [&](const char* name) -> const char* {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      [] { return GiB(30); });
}

TEST(OptionsTest, Defaults) {
  const auto options = Parse({});
  ASSERT_TRUE(options.ok());
  ASSERT_EQ(options.value().devices.size(), 1u);
  EXPECT_EQ(options.value().devices[0].name, "gpu0");
  EXPECT_EQ(options.value().devices[0].vram, GiB(15)) << "half of what the host has";
  EXPECT_EQ(options.value().devices[0].source, VramSource::kHost);
  EXPECT_EQ(options.value().context, MiB(64));
  EXPECT_EQ(options.value().live.bus_bytes_per_second, 8'000'000'000u);
}

TEST(OptionsTest, TheDriverReportsTheVersionThatIsSet) {
  const auto version = [](const char* text) {
    return DriverVersion([=](const char*) { return text; });
  };
  EXPECT_EQ(Parse({}).value().driver_version, 13000);
  EXPECT_EQ(Parse({{"TANDEM_SOFT_DRIVER_VERSION", "12.4"}}).value().driver_version, 12040);
  EXPECT_EQ(version("12.9"), 12090);
  EXPECT_EQ(version(nullptr), 13000);
  for (const char* text : {"13", "12.10", "11.8", "13.1", "12.4x", "new"}) {
    EXPECT_FALSE(Parse({{"TANDEM_SOFT_DRIVER_VERSION", text}}).ok()) << text;
    EXPECT_EQ(version(text), 13000) << text;
  }
}

TEST(OptionsTest, DevicesWithSizesOfTheirOwn) {
  const auto options = Parse({{"TANDEM_SOFT_DEVICES", "a,b:64M"}, {"TANDEM_SOFT_VRAM", "256M"}});
  ASSERT_TRUE(options.ok());
  ASSERT_EQ(options.value().devices.size(), 2u);
  EXPECT_EQ(options.value().devices[0].vram, MiB(256));
  EXPECT_EQ(options.value().devices[1].name, "b");
  EXPECT_EQ(options.value().devices[1].vram, MiB(64));
}

TEST(OptionsTest, DevicesWithoutASizeDivideAPartOfTheHostsMemory) {
  const auto options = Parse({{"TANDEM_SOFT_DEVICES", "a,b:64M,c"}}).value();
  EXPECT_EQ(options.devices[0].vram, GiB(7));
  EXPECT_EQ(options.devices[1].vram, MiB(64));
  EXPECT_EQ(options.devices[2].vram, GiB(7));
  EXPECT_EQ(options.devices[1].source, VramSource::kSet);
  const auto full = Parse({{"TANDEM_SOFT_DEVICES", "a,b:255G"}}).value();
  EXPECT_EQ(full.devices[0].vram, GiB(1));
}

TEST(OptionsTest, TheUsersSettingCountsWhereTheEnvironmentSetsNoPartOfIt) {
  const std::string home = testing::TempDir() + "options-" + std::to_string(getpid());
  std::filesystem::create_directories(home);
  const std::map<std::string, std::string> at_home = {{"XDG_CONFIG_HOME", home}};
  ASSERT_TRUE(WriteSoftGpuSetting(home + "/tandem/soft-gpu", {GiB(5), 2}).ok());
  const auto options = Parse(at_home).value();
  ASSERT_EQ(options.devices.size(), 2u);
  EXPECT_EQ(options.devices[1].name, "gpu1");
  EXPECT_EQ(options.devices[1].vram, GiB(5));
  EXPECT_EQ(options.devices[1].source, VramSource::kSet);
  auto with = at_home;
  with["TANDEM_SOFT_VRAM"] = "64M";
  EXPECT_EQ(Parse(with).value().devices.size(), 1u);
  EXPECT_EQ(Parse(with).value().devices[0].vram, MiB(64));
  std::ofstream(home + "/tandem/soft-gpu") << "nonsense\n";
  EXPECT_FALSE(Parse(at_home).ok());
  EXPECT_TRUE(Parse(with).ok()) << "the file is not read";
  std::filesystem::remove_all(home);
}

TEST(OptionsTest, DevicesForAllUsersHaveADirectory) {
  EXPECT_FALSE(Parse({}).value().shared);
  EXPECT_TRUE(Parse({{"TANDEM_SOFT_SHARED", "1"}, {"TANDEM_SOFT_DIR", "/srv/gpu"}}).value().shared);
  EXPECT_FALSE(Parse({{"TANDEM_SOFT_SHARED", "1"}}).ok());
}

TEST(OptionsTest, RefusalsNameTheVariable) {
  const std::map<std::string, std::string> bad[] = {
      {{"TANDEM_SOFT_VRAM", "much"}},        {{"TANDEM_SOFT_VRAM", "1K"}},
      {{"TANDEM_SOFT_DEVICES", "a,,b"}},     {{"TANDEM_SOFT_DEVICES", "../a"}},
      {{"TANDEM_SOFT_DEVICES", "a,a"}},      {{"TANDEM_SOFT_DEVICES", "a:x"}},
      {{"TANDEM_SOFT_PCIE", "8 bananas"}},   {{"TANDEM_SOFT_PCIE", "-1GB/s"}},
      {{"TANDEM_SOFT_FAIL_ALLOC", "three"}}, {{"TANDEM_SOFT_CONTEXT", "-5"}},
      {{"TANDEM_SOFT_ISA", "sse2"}},         {{"TANDEM_SOFT_CLOCK", "atomic"}},
      {{"TANDEM_SOFT_WATCHDOG", "2"}},       {{"TANDEM_SOFT_PRIORITY", "high"}},
      {{"TANDEM_SOFT_KILL_LAUNCH", "-1"}},   {{"TANDEM_SOFT_ECC_LAUNCH", "x"}},
      {{"TANDEM_SOFT_SLOW_BUS", "3"}},       {{"TANDEM_SOFT_FAIL_MAP", "every:"}},
      {{"TANDEM_SOFT_FAIL_MAP", "every:0"}}, {{"TANDEM_SOFT_FAIL_CREATE", "1/0"}},
      {{"TANDEM_SOFT_FAIL_COPY", "1/2:"}},   {{"TANDEM_SOFT_FAIL_REGISTER", "2/3"}},
      {{"TANDEM_SOFT_SHARED", "yes"}},       {{"TANDEM_SOFT_PAGE_FAULT", "2"}},
  };
  for (const auto& variables : bad) {
    const auto options = Parse(variables);
    ASSERT_FALSE(options.ok()) << variables.begin()->second;
    EXPECT_EQ(options.error().message.rfind(variables.begin()->first, 0), 0u);
  }
}

TEST(OptionsTest, DevicesFitTheAddressesOfOneProcess) {
  EXPECT_TRUE(Parse({{"TANDEM_SOFT_VRAM", "256G"}}).ok());
  EXPECT_FALSE(Parse({{"TANDEM_SOFT_VRAM", "257G"}}).ok());
  EXPECT_FALSE(Parse({{"TANDEM_SOFT_DEVICES", "a:128G,b:64G,c:65G"}}).ok());
}

TEST(OptionsTest, TheDocsHaveEveryRow) {
  std::ifstream file(SOFT_DOCS);
  const std::string docs((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  for (const OptionRow& row : OptionTable()) {
    const std::string text =
        std::string("| `") + row.name + "` | " + row.default_text + " | " + row.help + " |\n";
    EXPECT_NE(docs.find(text), std::string::npos) << text;
  }
}

TEST(OptionsTest, PathOfTheInterpreter) {
  EXPECT_EQ(Parse({}).value().path, ptx::Path::kAuto);
  EXPECT_EQ(Parse({{"TANDEM_SOFT_ISA", "baseline"}}).value().path, ptx::Path::kBaseline);
  EXPECT_EQ(Parse({{"TANDEM_SOFT_ISA", "avx2"}}).value().path, ptx::Path::kAvx2);
}

TEST(OptionsTest, TheClockAndTheFaults) {
  const auto options = Parse({{"TANDEM_SOFT_CLOCK", "model"},
                              {"TANDEM_SOFT_WATCHDOG", "1.5s"},
                              {"TANDEM_SOFT_PRIORITY", "-3"},
                              {"TANDEM_SOFT_PAGE_FAULT", "0.002ms"},
                              {"TANDEM_SOFT_SLOW_BUS", "4:10MB/s"}});
  ASSERT_TRUE(options.ok());
  EXPECT_TRUE(options.value().model_clock);
  EXPECT_EQ(options.value().watchdog, Milliseconds(1500));
  EXPECT_EQ(options.value().priority, -3);
  EXPECT_EQ(options.value().page_fault, Duration(2000));
  EXPECT_EQ(options.value().live.slow_copy, 4u);
  EXPECT_EQ(options.value().live.slow_bytes_per_second, 10'000'000u);
}

TEST(OptionsTest, Bandwidths) {
  EXPECT_EQ(ParseBandwidth("500MB/s").value(), 500'000'000u);
  EXPECT_EQ(ParseBandwidth("1.5GB/s").value(), 1'500'000'000u);
  EXPECT_FALSE(ParseBandwidth("").ok());
}

}  // namespace
}  // namespace tandem::soft
