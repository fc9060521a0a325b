#include "src/cli/containers/running.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace tandem::cli {
namespace {

const std::string kId(64, 'a');

TEST(RunningTest, AContainersIdIsInItsCgroup) {
  EXPECT_EQ(IdIn("/libpod_parent/libpod-" + kId), kId);
  EXPECT_EQ(IdIn("/machine.slice/libpod-" + kId + ".scope"), kId);
  EXPECT_EQ(IdIn("/docker/" + kId), kId);
  EXPECT_EQ(IdIn("/kubepods/besteffort/pod12-34/cri-containerd-" + kId + ".scope"), kId);
  EXPECT_EQ(IdIn("/kubepods/" + kId + "/container"), kId);
  EXPECT_EQ(IdIn("/user.slice/mine"), "mine");
  EXPECT_EQ(IdIn("/" + kId + "a"), kId + "a");  // too long for one
  EXPECT_EQ(IdIn(""), "");
}

TEST(RunningTest, AProcessOfTheHostIsInNoContainer) {
  const Result<RunningContainer> running = FindRunning(std::to_string(getpid()));
  ASSERT_FALSE(running.ok());
  EXPECT_NE(running.error().message.find("is in no container"), std::string::npos);
}

TEST(RunningTest, WhatIsNotThereIsNotFound) {
  for (const char* const target : {"", "no", "no-such-container", "999999999"}) {
    const Result<RunningContainer> running = FindRunning(target);
    ASSERT_FALSE(running.ok()) << target;
    EXPECT_EQ(running.error().code, ErrorCode::kNotFound) << target;
  }
}

}  // namespace
}  // namespace tandem::cli
