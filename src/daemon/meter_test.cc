#include "src/daemon/meter.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace tandem::daemon {
namespace {

constexpr int kPatienceMs = 60000;

class MeterTest : public ::testing::Test {
 protected:
  MeterTest() {
    std::string pattern = ::testing::TempDir() + "meter-XXXXXX";
    dir_ = mkdtemp(pattern.data());
  }
  ~MeterTest() override { std::filesystem::remove_all(dir_); }

  // A program in the place of the child.
  std::string Program(const std::string& script) {
    const std::string path = dir_ + "/child";
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    chmod(path.c_str(), 0755);
    return path;
  }
  std::optional<service::CardUses> Await(Meter& meter) {
    while (meter.fd() >= 0) {
      pollfd entry{meter.fd(), POLLIN, 0};
      if (poll(&entry, 1, kPatienceMs) != 1) return std::nullopt;
      auto uses = meter.Take(now_);
      if (uses.has_value()) return uses;
    }
    return std::nullopt;
  }

  std::string dir_;
  Instant now_ = Instant() + Seconds(1000);
};

TEST_F(MeterTest, OneChildAnswersAgainAndAgain) {
  Meter meter(Program(R"(while dd bs=1 count=1 status=none | grep -q .; do
    echo '{"GPU-1":{"free":7,"processes":[[12,3,5]]}}'; done)"));
  for (int i = 0; i < 3; ++i) {
    now_ = now_ + Seconds(1);
    meter.Ask(now_);
    EXPECT_TRUE(meter.asked());
    const auto uses = Await(meter);
    ASSERT_TRUE(uses.has_value());
    EXPECT_EQ(uses->asked_at, now_);
    EXPECT_EQ(uses->of.at("GPU-1").free, Bytes(7));
    EXPECT_EQ(uses->of.at("GPU-1").processes.at(12).least, Bytes(3));
    EXPECT_EQ(uses->of.at("GPU-1").processes.at(12).most, Bytes(5));
    EXPECT_FALSE(meter.asked());
  }
}

TEST_F(MeterTest, OneThatCannotOrTalksNonsenseIsLeftAloneForAWhile) {
  for (const char* script : {"exit 1", "echo nonsense; exec sleep 600", R"(echo '{"GPU-1":{}}')"}) {
    Meter meter(Program(std::string("head -c 1 > /dev/null; ") + script));
    meter.Ask(now_);
    EXPECT_FALSE(Await(meter).has_value()) << script;
    EXPECT_EQ(meter.fd(), -1);
    meter.Ask(now_ + Meter::kRest - Seconds(1));
    EXPECT_FALSE(meter.asked());
    meter.Ask(now_ + Meter::kRest);
    EXPECT_TRUE(meter.asked());
  }
}

TEST_F(MeterTest, OneThatHangsIsGivenUp) {
  Meter meter(Program("exec sleep 600"));
  meter.Ask(now_);
  ASSERT_EQ(meter.wake(), now_ + Meter::kPatience);
  meter.OnTime(now_ + Seconds(1));
  EXPECT_TRUE(meter.asked());
  meter.OnTime(now_ + Meter::kPatience);
  EXPECT_FALSE(meter.asked());
  EXPECT_EQ(meter.fd(), -1);
  EXPECT_FALSE(meter.wake().has_value());
}

// The user who starts the daemon reads its standard error to the end.
TEST_F(MeterTest, TheChildKeepsNoTerminalOpen) {
  Meter meter(Program(R"sh(dd bs=1 count=1 status=none >/dev/null
    echo '{"'"$(readlink /proc/self/fd/2)"'":{"free":0,"processes":[]}}')sh"));
  meter.Ask(now_);
  const auto uses = Await(meter);
  ASSERT_TRUE(uses.has_value());
  EXPECT_EQ(uses->of.count("/dev/null"), 1u);
}

TEST_F(MeterTest, WhereThereIsNoProgramNothingHappens) {
  Meter meter(dir_ + "/none");
  meter.Ask(now_);
  EXPECT_FALSE(meter.asked());
}

}  // namespace
}  // namespace tandem::daemon
