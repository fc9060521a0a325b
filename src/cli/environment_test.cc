#include "src/cli/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::cli {
namespace {

using ::testing::Eq;
using ::testing::Optional;

const Layout kLayout{"/t/bin/tandemd", "/t/lib/libtandem.so", "/t/lib/tandem/soft"};

Environment Shared(Environment environment, Gpu gpu = Gpu::kSoft) {
  Result<Environment> result = SharedEnvironment(std::move(environment), kLayout, gpu, 42);
  EXPECT_TRUE(result.ok());
  return *result;
}

TEST(SharedEnvironment, AddsShimRunAndSoftwareGpu) {
  const Environment environment = Shared({"HOME=/h"});
  EXPECT_THAT(environment,
              testing::UnorderedElementsAre("HOME=/h", "LD_PRELOAD=/t/lib/libtandem.so",
                                            "LD_LIBRARY_PATH=/t/lib/tandem/soft", "TANDEM_RUN=42",
                                            "TANDEM_GPU=soft"));
}

TEST(SharedEnvironment, KeepsWhatWasPreloadedAfterTheShim) {
  const Environment environment = Shared({"LD_PRELOAD=/a.so /b.so", "LD_LIBRARY_PATH=/x:/y"});
  EXPECT_THAT(Lookup(environment, "LD_PRELOAD"), Optional(Eq("/t/lib/libtandem.so:/a.so:/b.so")));
  EXPECT_THAT(Lookup(environment, "LD_LIBRARY_PATH"), Optional(Eq("/t/lib/tandem/soft:/x:/y")));
}

TEST(SharedEnvironment, TwiceIsOnce) {
  const Environment once = Shared({"LD_PRELOAD=/a.so", "LD_LIBRARY_PATH=:/x"});
  EXPECT_THAT(Shared(once), testing::UnorderedElementsAreArray(once));
}

TEST(SharedEnvironment, KeepsEmptyPathsThatMeanTheCurrentFolder) {
  EXPECT_THAT(Lookup(Shared({"LD_LIBRARY_PATH=/x::/y"}), "LD_LIBRARY_PATH"),
              Optional(Eq("/t/lib/tandem/soft:/x::/y")));
}

TEST(SharedEnvironment, TakesTheSoftwareGpuOutForACard) {
  const Environment environment = Shared(Shared({"LD_LIBRARY_PATH=/x"}), Gpu::kCuda);
  EXPECT_THAT(Lookup(environment, "LD_LIBRARY_PATH"), Optional(Eq("/x")));
  EXPECT_THAT(Lookup(environment, "TANDEM_GPU"), Optional(Eq("cuda")));
}

TEST(SharedEnvironment, RefusesAPathTheLoaderWouldCutInTwo) {
  Layout layout = kLayout;
  layout.shim = "/my things/libtandem.so";
  const Result<Environment> result = SharedEnvironment({}, layout, Gpu::kCuda, 1);
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().message, testing::HasSubstr("/my things"));
}

TEST(BareEnvironment, UndoesTheSharedOne) {
  const Environment before = {"LD_PRELOAD=/a.so", "HOME=/h"};
  const Result<Environment> bare = BareEnvironment(Shared(before, Gpu::kCuda), kLayout, Gpu::kCuda);
  ASSERT_TRUE(bare.ok());
  EXPECT_THAT(*bare,
              testing::UnorderedElementsAre("LD_PRELOAD=/a.so", "HOME=/h", "TANDEM_GPU=cuda"));
}

TEST(BareEnvironment, LeavesNoEmptyPreload) {
  const Result<Environment> bare = BareEnvironment(Shared({}), kLayout, Gpu::kSoft);
  ASSERT_TRUE(bare.ok());
  EXPECT_THAT(Lookup(*bare, "LD_PRELOAD"), Eq(std::nullopt));
}

TEST(DevicePriority, GoesByTheClassAndTheUserMaySayLess) {
  const auto priority = [](Environment environment, std::string_view of_class) {
    SetDevicePriority(&environment, of_class);
    return Lookup(environment, "TANDEM_SOFT_PRIORITY");
  };
  EXPECT_THAT(priority({}, "production"), Eq("10"));
  EXPECT_THAT(priority({}, "opportunistic"), Eq("-10"));
  EXPECT_THAT(priority({}, "interactive"), Eq(std::nullopt));
  EXPECT_THAT(priority({}, ""), Eq(std::nullopt));
  EXPECT_THAT(priority({"TANDEM_SOFT_PRIORITY=3"}, "production"), Eq("3"));
  EXPECT_THAT(priority({"TANDEM_SOFT_PRIORITY=100"}, "production"), Eq("10"));
  EXPECT_THAT(priority({"TANDEM_SOFT_PRIORITY=100"}, "interactive"), Eq("0"));
  EXPECT_THAT(priority({"TANDEM_SOFT_PRIORITY=-3"}, "interactive"), Eq("-3"));
  EXPECT_THAT(priority({"TANDEM_SOFT_PRIORITY=0"}, "opportunistic"), Eq("-10"));
  EXPECT_THAT(priority({"TANDEM_SOFT_PRIORITY=high"}, "batch"), Eq("high"));
}

TEST(ChooseGpu, AskedForComesFirst) {
  int asked = 0;
  const auto driver = [&] {
    ++asked;
    return cuda::DriverState();
  };
  EXPECT_EQ(ChooseGpu("soft", driver)->gpu, Gpu::kSoft);
  EXPECT_EQ(ChooseGpu("cuda", driver)->gpu, Gpu::kCuda);
  EXPECT_FALSE(ChooseGpu("cuda", driver)->by_machine);
  EXPECT_FALSE(ChooseGpu("metal", driver).ok());
  EXPECT_EQ(asked, 0) << "the driver has no say";
}

TEST(ChooseGpu, ElseTheMachinesDriverDecidesEvenABrokenOne) {
  using Kind = cuda::DriverState::Kind;
  const auto choose = [](Kind kind, const char* why) {
    return *ChooseGpu("", [&] { return cuda::DriverState{kind, why}; });
  };
  EXPECT_EQ(choose(Kind::kNone, "").gpu, Gpu::kSoft);
  EXPECT_TRUE(choose(Kind::kNone, "").by_machine);
  EXPECT_EQ(choose(Kind::kWorks, "").gpu, Gpu::kCuda);
  EXPECT_EQ(choose(Kind::kBroken, "it fails").gpu, Gpu::kCuda);
  EXPECT_EQ(choose(Kind::kBroken, "it fails").broken, "it fails");
  const auto unasked = ChooseGpu(std::nullopt, [] { return cuda::DriverState(); });
  EXPECT_TRUE(unasked->by_machine);
}

}  // namespace
}  // namespace tandem::cli
