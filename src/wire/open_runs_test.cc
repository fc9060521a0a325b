#include "src/wire/open_runs.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace tandem::wire {
namespace {

class OpenRunsTest : public testing::Test {
 protected:
  OpenRunsTest() {
    std::string name = testing::TempDir() + "runsXXXXXX";
    dir_ = mkdtemp(name.data());
    setenv("TANDEM_RUNTIME_DIR", dir_.c_str(), 1);
  }
  ~OpenRunsTest() override {
    unsetenv("TANDEM_RUNTIME_DIR");
    unsetenv("TANDEM_GPU");
    std::filesystem::remove_all(dir_);
  }

  std::string dir_;
};

TEST_F(OpenRunsTest, ARunIsOpenWhileItsMarkLasts) {
  constexpr uint64_t kRun = kLeaseBit - 1;  // the largest there is
  EXPECT_FALSE(IsOpenRun(kRun));
  Result<UniqueFd> mark = MarkRunOpen(kRun);
  ASSERT_TRUE(mark.ok()) << mark.error().message;
  EXPECT_TRUE(IsOpenRun(kRun));
  EXPECT_FALSE(IsOpenRun(kRun - 1));
  EXPECT_FALSE(IsOpenRun(uint64_t{1} << 63));  // no run's number
  mark->Reset();
  EXPECT_FALSE(IsOpenRun(kRun));
}

TEST_F(OpenRunsTest, ALeaseIsOpenUntilTheDaemonSaysOtherwise) {
  EXPECT_TRUE(IsOpenRun(LeaseToken(12345)));
  EXPECT_FALSE(IsOpenRun(RunToken(LeaseToken(12345))));
}

TEST_F(OpenRunsTest, RunsOfOneKindOfGpuAreNoneOfTheOther) {
  const Result<UniqueFd> mark = MarkRunOpen(7);
  ASSERT_TRUE(mark.ok());
  setenv("TANDEM_GPU", "soft", 1);
  EXPECT_FALSE(IsOpenRun(7));
}

}  // namespace
}  // namespace tandem::wire
