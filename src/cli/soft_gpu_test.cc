#include "src/cli/soft_gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::cli {
namespace {

using ::testing::HasSubstr;

constexpr SoftGpuSetting kBefore = {GiB(8), 2};

SoftGpuOptions Asked(std::optional<std::string> memory, std::optional<int> count) {
  SoftGpuOptions options;
  options.memory = std::move(memory);
  options.count = count;
  return options;
}

TEST(SoftGpuSetting, OptionsChangeWhatTheyName) {
  const auto changed = [](const SoftGpuOptions& options) {
    return ChangedSetting(kBefore, options, GiB(64)).value();
  };
  EXPECT_EQ(changed(Asked("16G", {})), (SoftGpuSetting{GiB(16), 2}));
  EXPECT_EQ(changed(Asked({}, 3)), (SoftGpuSetting{GiB(8), 3}));
  EXPECT_EQ(changed(Asked("auto", 1)), SoftGpuSetting());
  EXPECT_EQ(changed(Asked("129M", 1)), (SoftGpuSetting{MiB(128), 1})) << "whole pages";
}

TEST(SoftGpuSetting, RefusesWhatTheHostDoesNotHave) {
  const auto refusal = [](const SoftGpuOptions& options, Bytes host) {
    const auto changed = ChangedSetting(kBefore, options, host);
    return changed.ok() ? "" : changed.error().message;
  };
  EXPECT_EQ(refusal(Asked("16G", 4), GiB(64)), "");
  EXPECT_THAT(refusal(Asked("16G", 5), GiB(64)), HasSubstr("this host has 64 GiB"));
  EXPECT_THAT(refusal(Asked({}, 16), GiB(64)), HasSubstr("16 cards of 8 GiB"));
  EXPECT_THAT(refusal(Asked("200G", {}), GiB(1024)), HasSubstr("at most 256 GiB"));
  EXPECT_THAT(refusal(Asked("64M", {}), GiB(64)), HasSubstr("at least 128 MiB"));
}

TEST(SoftGpuSetting, ADaemonWithOtherCardsNeedsARestart) {
  const std::string status =
      R"({"gpus":[{"card_bytes":8589934592},{"card_bytes":8589934592}],"pid":7})";
  EXPECT_FALSE(NeedsRestart(kBefore, status));
  EXPECT_TRUE(NeedsRestart({GiB(4), 2}, status));
  EXPECT_TRUE(NeedsRestart({GiB(8), 1}, status));
  EXPECT_FALSE(NeedsRestart({std::nullopt, 2}, status));
  EXPECT_FALSE(NeedsRestart(kBefore, "nonsense"));
}

}  // namespace
}  // namespace tandem::cli
