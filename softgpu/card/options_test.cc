#include "softgpu/card/options.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>

namespace tandem::soft {
namespace {

Result<Options> Parse(const std::map<std::string, std::string>& variables) {
  return ParseOptions([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(OptionsTest, Defaults) {
  const auto options = Parse({});
  ASSERT_TRUE(options.ok());
  ASSERT_EQ(options.value().devices.size(), 1u);
  EXPECT_EQ(options.value().devices[0].name, "gpu0");
  EXPECT_EQ(options.value().devices[0].vram, GiB(1));
  EXPECT_EQ(options.value().context, MiB(64));
  EXPECT_EQ(options.value().live.bus_bytes_per_second, 8'000'000'000u);
}

TEST(OptionsTest, DevicesWithSizesOfTheirOwn) {
  const auto options = Parse({{"TANDEM_SOFT_DEVICES", "a,b:64M"}, {"TANDEM_SOFT_VRAM", "256M"}});
  ASSERT_TRUE(options.ok());
  ASSERT_EQ(options.value().devices.size(), 2u);
  EXPECT_EQ(options.value().devices[0].vram, MiB(256));
  EXPECT_EQ(options.value().devices[1].name, "b");
  EXPECT_EQ(options.value().devices[1].vram, MiB(64));
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
