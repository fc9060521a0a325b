#include "integrations/kubernetes/room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tandem::kubernetes {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

constexpr auto kBestFit = Placement::kBestFit;
constexpr auto kMostRoom = Placement::kMostRoom;

const Outstanding::Time kStart{};

TEST(KubernetesRoomTest, ALabelTellsTheRoomOfEachGpu) {
  EXPECT_EQ(LabelOf({4, 10, 0}), "10-4-0");
  const Result<Room> room = RoomOf("4-10-0");
  ASSERT_TRUE(room.ok());
  EXPECT_THAT(*room, ElementsAre(10, 4, 0));
  EXPECT_EQ(LabelOf({}), "");
  EXPECT_THAT(*RoomOf(""), IsEmpty());
}

TEST(KubernetesRoomTest, ALabelIsNeverTooLong) {
  const std::string label = LabelOf(Room(32, 180));
  EXPECT_LE(label.size(), 63u);
  EXPECT_THAT(*RoomOf(label), testing::Each(180));
}

TEST(KubernetesRoomTest, OtherTextIsNoRoom) {
  for (const char* const text : {"x", "4-", "-4", "4--4", "4 4", "4.4", "99999999999"}) {
    EXPECT_FALSE(RoomOf(text).ok()) << text;
  }
}

TEST(KubernetesRoomTest, WhatIsLeftOnTwoGpusIsNotOneRoom) {
  EXPECT_FALSE(Place({4, 4}, {7}, kBestFit).has_value());
  EXPECT_FALSE(Place({}, {1}, kBestFit).has_value());
  EXPECT_TRUE(Place({7, 1}, {7}, kBestFit).has_value());
}

TEST(KubernetesRoomTest, TheBestFitIsTaken) {
  const std::optional<Placed> placed = Place({9, 5, 2}, {4}, kBestFit);
  ASSERT_TRUE(placed.has_value());
  EXPECT_THAT(placed->left, ElementsAre(9, 2, 1));
  EXPECT_EQ(placed->spare, 1);
}

TEST(KubernetesRoomTest, OrTheGpuWithTheMostRoom) {
  const std::optional<Placed> placed = Place({9, 5, 2}, {4, 4}, kMostRoom);
  ASSERT_TRUE(placed.has_value());
  EXPECT_THAT(placed->left, ElementsAre(5, 2, 1));
  EXPECT_EQ(placed->spare, 1);
  EXPECT_FALSE(Place({9, 5, 2}, {10}, kMostRoom).has_value());
  EXPECT_THAT(Scores({{"a", 0}, {"b", 5}, {"c", 10}}, kMostRoom),
              ElementsAre(Pair("a", 0), Pair("b", 5), Pair("c", 10)));
}

TEST(KubernetesRoomTest, ContainersOfAPodMayHaveDifferentGpus) {
  EXPECT_THAT(Place({6, 6}, {6, 6}, kBestFit)->left, ElementsAre(0, 0));
  EXPECT_FALSE(Place({6, 6}, {4, 4, 4}, kBestFit).has_value());
}

TEST(KubernetesRoomTest, TheNodeWithTheLeastToSpareHasTheBestScore) {
  EXPECT_THAT(Scores({{"a", 0}, {"b", 5}, {"c", 10}}, kBestFit),
              ElementsAre(Pair("a", 10), Pair("b", 5), Pair("c", 0)));
  EXPECT_THAT(Scores({{"a", 0}}, kBestFit), ElementsAre(Pair("a", 10)));
}

TEST(KubernetesOutstandingTest, AContainerIsOutstandingUntilTheLabelShowsIt) {
  Outstanding outstanding;
  EXPECT_EQ(outstanding.Units("n", "100-7", kStart), 0);
  outstanding.Add("n", {4}, kStart);
  EXPECT_EQ(outstanding.Units("n", "100-7", kStart), 4);
  EXPECT_EQ(outstanding.Units("other", "100-7", kStart), 0);
  EXPECT_EQ(outstanding.Units("n", "100-8", kStart), 0);
  EXPECT_EQ(outstanding.Units("n", "100-8", kStart), 0);
}

TEST(KubernetesOutstandingTest, TheSmallestAreTakenForThoseThatAreShown) {
  Outstanding outstanding;
  EXPECT_EQ(outstanding.Units("n", "100-0", kStart), 0);
  outstanding.Add("n", {5, 1}, kStart);
  outstanding.Add("n", {3}, kStart);
  EXPECT_EQ(outstanding.Units("n", "100-1", kStart), 8);
  EXPECT_EQ(outstanding.Units("n", "100-2", kStart), 5);
  EXPECT_EQ(outstanding.Units("n", "100-9", kStart), 0);
}

TEST(KubernetesOutstandingTest, AContainerThatWasNotBoundAfterAllIsNot) {
  Outstanding outstanding;
  outstanding.Add("n", {3, 5}, kStart);
  outstanding.Remove("n", {3, 4});
  EXPECT_EQ(outstanding.Units("n", "100-0", kStart), 5);
}

TEST(KubernetesOutstandingTest, AContainerThatIsNeverShownIsForgotten) {
  Outstanding outstanding;
  outstanding.Add("n", {3}, kStart);
  const auto later = kStart + Outstanding::kForgotten + std::chrono::seconds(1);
  EXPECT_EQ(outstanding.Units("n", "100-0", kStart), 3);
  EXPECT_EQ(outstanding.Units("n", "100-0", later), 0);
}

TEST(KubernetesOutstandingTest, ANewPluginCountsFromTheStart) {
  Outstanding outstanding;
  EXPECT_EQ(outstanding.Units("n", "100-7", kStart), 0);
  outstanding.Add("n", {3}, kStart);
  EXPECT_EQ(outstanding.Units("n", "200-9", kStart), 3);
  EXPECT_EQ(outstanding.Units("n", "200-10", kStart), 0);
}

TEST(KubernetesOutstandingTest, OtherLabelsShowNothing) {
  Outstanding outstanding;
  outstanding.Add("n", {3}, kStart);
  for (const char* const label : {"", "x", "-", "1-x", "1-", "--5"}) {
    EXPECT_EQ(outstanding.Units("n", label, kStart), 3) << label;
  }
}

TEST(KubernetesOutstandingTest, APodWaitsUnlessOneGpuHasRoomForAll) {
  EXPECT_EQ(PlaceBeside(4, {10, 8}, {6}, kBestFit)->spare, 0);
  EXPECT_FALSE(PlaceBeside(5, {10, 8}, {6}, kBestFit).has_value());
  EXPECT_TRUE(PlaceBeside(0, {10, 8}, {10}, kBestFit).has_value());
  EXPECT_FALSE(PlaceBeside(1, {}, {1}, kBestFit).has_value());
}

// Whatever the order in which the kubelet takes pods, each has a GPU with room.
TEST(KubernetesOutstandingTest, EveryOrderOfBoundPodsEndsWell) {
  std::mt19937 random(testing::UnitTest::GetInstance()->random_seed());
  SCOPED_TRACE(testing::UnitTest::GetInstance()->random_seed());
  for (int round = 0; round < 2000; ++round) {
    Room room(1 + random() % 4);
    for (int& free : room) free = static_cast<int>(random() % 12);
    std::sort(room.rbegin(), room.rend());
    std::vector<int> bound;
    int outstanding = 0;
    for (int tries = 0; tries < 8; ++tries) {
      const int units = 1 + static_cast<int>(random() % 6);
      if (!PlaceBeside(outstanding, room, {units}, kBestFit).has_value()) continue;
      bound.push_back(units);
      outstanding += units;
    }
    std::shuffle(bound.begin(), bound.end(), random);
    for (const Placement placement : {kBestFit, kMostRoom}) {
      EXPECT_TRUE(Place(room, bound, placement).has_value());
    }
  }
}

}  // namespace
}  // namespace tandem::kubernetes
