#include "softgpu/card/faults.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <initializer_list>
#include <string>

namespace tandem::soft {
namespace {

LiveOptions Parsed(const std::string& text) {
  const auto options = ParseLiveOptions(text, LiveOptions{.bus_bytes_per_second = 8'000});
  EXPECT_TRUE(options.ok()) << text;
  return options.ok() ? *options : LiveOptions{};
}

// Which of the next `count` come to grief, as 1s.
std::string Next(Faults& faults, Fault fault, int count) {
  std::string due;
  for (int i = 0; i < count; ++i) due += faults.Due(fault) ? '1' : '0';
  return due;
}

TEST(FaultsTest, RulesSayWhich) {
  Faults none(Parsed(""), "");
  EXPECT_EQ(Next(none, kFailMap, 4), "0000");
  Faults third(Parsed("TANDEM_SOFT_FAIL_MAP=3\n"), "");
  EXPECT_EQ(Next(third, kFailMap, 7), "0010000");
  Faults every(Parsed("TANDEM_SOFT_FAIL_CREATE=every:3\n"), "");
  EXPECT_EQ(Next(every, kFailCreate, 7), "0010010");
  EXPECT_EQ(Next(every, kFailMap, 7), "0000000");  // each kind has its own
}

TEST(FaultsTest, OneInSoManyIsTheSameForASeed) {
  constexpr int kCount = 4000;
  const auto draw = [](const std::string& rule) {
    Faults faults(Parsed("TANDEM_SOFT_FAIL_COPY=" + rule), "");
    return Next(faults, kFailCopy, kCount);
  };
  const std::string due = draw("1/4:7");
  EXPECT_EQ(due, draw("1/4:7"));
  EXPECT_NE(due, draw("1/4:8"));
  EXPECT_NE(due, draw("1/4"));
  // Of 4000 draws 1000 hits are expected, give or take 27: this is 5 times that.
  EXPECT_NEAR(static_cast<double>(std::count(due.begin(), due.end(), '1')), kCount / 4.0, 137);
  EXPECT_EQ(draw("1/1"), std::string(kCount, '1'));
}

TEST(FaultsTest, TheBusIsSlowFromACopyOn) {
  Faults plain(Parsed(""), "");
  EXPECT_EQ(plain.CopyBegins(), 8'000u);
  Faults faults(Parsed("TANDEM_SOFT_SLOW_BUS=3:1MB/s"), "");
  for (const uint64_t expected : {8'000, 8'000, 1'000'000, 1'000'000}) {
    EXPECT_EQ(faults.CopyBegins(), expected);
  }
}

// A file that others replace.
class FaultsFileTest : public testing::Test {
 protected:
  FaultsFileTest() : name_("/tmp/tandem-faults-" + std::to_string(getpid())) {}
  ~FaultsFileTest() override { unlink(name_.c_str()); }
  void Put(const std::string& text) {
    const std::string other = name_ + ".new";
    std::ofstream(other) << text;
    ASSERT_EQ(rename(other.c_str(), name_.c_str()), 0);
  }
  const std::string name_;
};

TEST_F(FaultsFileTest, SaysWhatGoesWrongFromNowOn) {
  Faults faults(Parsed("TANDEM_SOFT_FAIL_MAP=every:2"), name_);
  EXPECT_EQ(Next(faults, kFailMap, 4), "0101");  // there is none yet
  Put("# what the tormentor wants\n\nTANDEM_SOFT_FAIL_COPY=every:1\nTANDEM_SOFT_PCIE=5MB/s\n");
  EXPECT_EQ(Next(faults, kFailCopy, 2), "11");
  EXPECT_EQ(Next(faults, kFailMap, 4), "0101");  // what it does not name, it leaves
  EXPECT_EQ(faults.CopyBegins(), 5'000'000u);
  Put("TANDEM_SOFT_FAIL_MAP=0");
  EXPECT_EQ(Next(faults, kFailCopy, 2), "00");
  EXPECT_EQ(Next(faults, kFailMap, 4), "0000");
  EXPECT_EQ(faults.CopyBegins(), 8'000u);
  ASSERT_EQ(unlink(name_.c_str()), 0);
  EXPECT_EQ(Next(faults, kFailMap, 4), "0101");
}

TEST_F(FaultsFileTest, ARuleCountsFromWhereItWasSet) {
  Faults faults(Parsed(""), name_);
  Put("TANDEM_SOFT_FAIL_MAP=3\nTANDEM_SOFT_FAIL_CREATE=3\n");
  EXPECT_EQ(Next(faults, kFailMap, 2), "00");
  EXPECT_EQ(Next(faults, kFailCreate, 2), "00");
  Put("TANDEM_SOFT_FAIL_MAP=2\nTANDEM_SOFT_FAIL_CREATE=3\n");
  EXPECT_EQ(Next(faults, kFailMap, 3), "010");
  EXPECT_EQ(Next(faults, kFailCreate, 1), "1");  // as it was
}

TEST_F(FaultsFileTest, WhatMakesNoSenseChangesNothing) {
  Faults faults(Parsed(""), name_);
  Put("TANDEM_SOFT_FAIL_MAP=every:1\n");
  EXPECT_TRUE(faults.Due(kFailMap));
  for (const std::string bad :
       {"TANDEM_SOFT_FAIL_MAP=often", "TANDEM_SOFT_FAIL_MAP", "TANDEM_SOFT_VRAM=1G", "nonsense"}) {
    SCOPED_TRACE(bad);
    testing::internal::CaptureStderr();
    Put(bad + "\n");
    EXPECT_TRUE(faults.Due(kFailMap));
    EXPECT_TRUE(faults.Due(kFailMap));
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find(name_), std::string::npos) << said;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;  // once
  }
}

}  // namespace
}  // namespace tandem::soft
