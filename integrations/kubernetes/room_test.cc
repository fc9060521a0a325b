#include "integrations/kubernetes/room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::kubernetes {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

constexpr auto kBestFit = Placement::kBestFit;
constexpr auto kMostRoom = Placement::kMostRoom;

const Assumed::Time kStart{};

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

TEST(KubernetesAssumedTest, ABoundPodHasItsRoomBeforeTheLabelShowsIt) {
  Assumed assumed(kBestFit);
  EXPECT_THAT(assumed.Without("n", {10, 4}, kStart), ElementsAre(10, 4));
  assumed.Add("n", {4}, kStart);
  EXPECT_THAT(assumed.Without("n", {10, 4}, kStart), ElementsAre(10, 0));
  EXPECT_THAT(assumed.Without("other", {10, 4}, kStart), ElementsAre(10, 4));
  EXPECT_THAT(assumed.Without("n", {10, 0}, kStart), ElementsAre(10, 0));  // shown
  EXPECT_THAT(assumed.Without("n", {10, 4}, kStart), ElementsAre(10, 4));  // and gone again
}

TEST(KubernetesAssumedTest, ALabelMayShowAPodBeforeTheNextOneAsks) {
  Assumed assumed(kBestFit);
  EXPECT_THAT(assumed.Without("n", {10}, kStart), ElementsAre(10));
  assumed.Add("n", {4}, kStart);
  EXPECT_THAT(assumed.Without("n", {6}, kStart), ElementsAre(6));
}

TEST(KubernetesAssumedTest, ALabelMayShowSomePodsAndNotOthers) {
  Assumed assumed(kBestFit);
  assumed.Add("n", {3}, kStart);
  assumed.Add("n", {2}, kStart);
  EXPECT_THAT(assumed.Without("n", {10}, kStart), ElementsAre(5));
  EXPECT_THAT(assumed.Without("n", {7}, kStart), ElementsAre(5));
  EXPECT_THAT(assumed.Without("n", {5}, kStart), ElementsAre(5));
}

TEST(KubernetesAssumedTest, APodThatNeverShowsIsForgotten) {
  Assumed assumed(kBestFit);
  assumed.Add("n", {3}, kStart);
  EXPECT_THAT(assumed.Without("n", {10}, kStart), ElementsAre(7));
  const auto later = kStart + Assumed::kForgotten + std::chrono::seconds(1);
  EXPECT_THAT(assumed.Without("n", {10}, later), ElementsAre(10));
}

TEST(KubernetesAssumedTest, RoomThatIsGivenBackIsNoPodThatShows) {
  Assumed assumed(kBestFit);
  assumed.Add("n", {3}, kStart);
  EXPECT_THAT(assumed.Without("n", {4}, kStart), ElementsAre(1));
  EXPECT_THAT(assumed.Without("n", {9}, kStart), ElementsAre(6));
}

}  // namespace
}  // namespace tandem::kubernetes
