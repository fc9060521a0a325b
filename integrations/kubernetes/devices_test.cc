#include "integrations/kubernetes/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::kubernetes {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

constexpr auto kFullest = Placement::kBestFit;

TEST(KubernetesDevicesTest, EachUnitIsADevice) {
  EXPECT_THAT(DeviceIds({{0, 2}, {3, 1}}), ElementsAre("gpu0-0", "gpu0-1", "gpu3-0"));
  EXPECT_TRUE(IsOf("gpu3-0", {1, 3}));
  EXPECT_FALSE(IsOf("gpu13-0", {1, 3}));
  EXPECT_FALSE(IsOf("nic1-0", {1, 3}));
}

TEST(KubernetesDevicesTest, AContainerIsOnOneGpu) {
  const Result<Grant> grant = GrantOf({"gpu3-7", "gpu3-2"});
  ASSERT_TRUE(grant.ok());
  EXPECT_EQ(grant->gpu, 3);
  EXPECT_EQ(grant->devices, 2);
  EXPECT_THAT(GrantOf({"gpu0-1", "gpu1-1", "gpu1-2"}).error().message,
              HasSubstr("it would have 1 on gpu0, 2 on gpu1"));
  for (const char* id : {"", "gpu", "gpu-1", "gpux-1", "gpu1", "card1-1", "gpu-1-1"}) {
    EXPECT_FALSE(GrantOf({id}).ok()) << id;
  }
  EXPECT_FALSE(GrantOf({}).ok());
}

TEST(KubernetesDevicesTest, TheFullestGpuWithRoomIsPreferred) {
  const std::vector<std::string> available = DeviceIds({{0, 4}, {1, 2}, {2, 3}});
  EXPECT_THAT(Prefer(available, {}, 2, kFullest), ElementsAre("gpu1-0", "gpu1-1"));
  EXPECT_THAT(Prefer(available, {}, 3, kFullest), ElementsAre("gpu2-0", "gpu2-1", "gpu2-2"));
  EXPECT_THAT(Prefer(available, {"gpu0-3"}, 2, kFullest), ElementsAre("gpu0-3", "gpu0-0"));
}

TEST(KubernetesDevicesTest, OrTheGpuWithTheMostRoom) {
  const std::vector<std::string> available = DeviceIds({{0, 4}, {1, 2}, {2, 5}});
  EXPECT_THAT(Prefer(available, {}, 2, Placement::kMostRoom), ElementsAre("gpu2-0", "gpu2-1"));
  EXPECT_THAT(Prefer(available, {"gpu1-1"}, 2, Placement::kMostRoom),
              ElementsAre("gpu1-1", "gpu1-0"));
}

TEST(KubernetesDevicesTest, WhatNoGpuHasIsStillAnswered) {
  const std::vector<std::string> chosen = Prefer(DeviceIds({{0, 4}, {1, 4}}), {}, 7, kFullest);
  EXPECT_EQ(chosen.size(), 7u);
  EXPECT_FALSE(GrantOf(chosen).ok());
  EXPECT_THAT(Prefer({"gpu0-0"}, {}, 3, kFullest), UnorderedElementsAre("gpu0-0"));
  EXPECT_TRUE(Prefer({}, {}, 1, kFullest).empty());
}

TEST(KubernetesDevicesTest, MemoryHasTheNameOfItsCdiDevice) {
  EXPECT_EQ(MemoryDevice({0, 20}, GiB(1)), "0-20g");
  EXPECT_EQ(MemoryDevice({1, 3}, MiB(512)), "1-1536m");
}

TEST(KubernetesDevicesTest, UnitsThatContainersHaveAreNotFree) {
  EXPECT_THAT(FreeOf({{0, 4}, {2, 2}}, {"gpu0-3", "gpu2-0", "gpu2-1", "gpu2-7", "gpu5-1", "x"}),
              ElementsAre(3, 0));
  EXPECT_THAT(FreeOf({}, {"gpu0-3"}), testing::IsEmpty());
}

}  // namespace
}  // namespace tandem::kubernetes
