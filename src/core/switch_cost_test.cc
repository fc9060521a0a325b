#include "src/core/switch_cost.h"

#include <gtest/gtest.h>

namespace tandem::core {
namespace {

constexpr Bytes kChunk = MiB(2);

Moves Copies(Way way, Place place, Bytes bytes) {
  Moves moves;
  moves.at(way, place) = bytes;
  return moves;
}

Duration Takes(double bytes_per_second, Bytes bytes) {
  return Duration(static_cast<int64_t>(static_cast<double>(bytes.count) / bytes_per_second * 1e9));
}

class SwitchCostTest : public ::testing::Test {
 protected:
  void Move(Way way, Place place, double bytes_per_second, int chunks) {
    for (int i = 0; i < chunks; ++i) {
      cost_.LearnMove(way, place, kChunk, Takes(bytes_per_second, kChunk));
    }
  }
  double Seconds(Way way, Place place, Bytes bytes) const {
    return cost_.Estimate(Copies(way, place, bytes)).seconds();
  }

  SwitchCost cost_{8e9, kChunk};
};

TEST_F(SwitchCostTest, BeforeAnythingMovedTheAssumedBusCounts) {
  EXPECT_NEAR(Seconds(Way::kOut, Place::kMemory, Bytes(8'000'000'000)), 1, 0.01);
  EXPECT_NEAR(Seconds(Way::kIn, Place::kFile, Bytes(8'000'000'000)), 1, 0.01);
  EXPECT_LT(Seconds(Way::kIn, Place::kCard, Bytes(8'000'000'000)), 0.01);
}

TEST_F(SwitchCostTest, TheFirstChunkReplacesWhatWasAssumed) {
  Move(Way::kOut, Place::kMemory, 50e6, 1);
  EXPECT_NEAR(Seconds(Way::kOut, Place::kMemory, Bytes(50'000'000)), 1, 0.01);
}

TEST_F(SwitchCostTest, ABusThatBecomesTenTimesSlowerOrFasterIsFollowedWithinAFewChunks) {
  for (const double rate : {1e9, 1e8, 1e9, 1e10}) {
    Move(Way::kOut, Place::kMemory, rate, 32);
    EXPECT_NEAR(Seconds(Way::kOut, Place::kMemory, Bytes(static_cast<uint64_t>(rate))), 1, 0.15);
  }
}

TEST_F(SwitchCostTest, WaysAndPlacesHaveRatesOfTheirOwn) {
  Move(Way::kOut, Place::kMemory, 1e9, 8);
  Move(Way::kIn, Place::kMemory, 2e9, 8);
  Move(Way::kOut, Place::kFile, 1e8, 8);
  EXPECT_NEAR(Seconds(Way::kOut, Place::kMemory, Bytes(1'000'000'000)), 1, 0.01);
  EXPECT_NEAR(Seconds(Way::kIn, Place::kMemory, Bytes(1'000'000'000)), 0.5, 0.01);
  EXPECT_NEAR(Seconds(Way::kOut, Place::kFile, Bytes(1'000'000'000)), 10, 0.1);
  EXPECT_NEAR(Seconds(Way::kIn, Place::kFile, Bytes(1'000'000'000)), 10, 0.1);  // as the other way
  Moves both = Moves::BothWays(Bytes(1'000'000'000));
  EXPECT_NEAR(cost_.Estimate(both).seconds(), 1, 0.01);  // at once
  both.at(Way::kIn, Place::kFile) = Bytes(100'000'000);
  EXPECT_NEAR(cost_.Estimate(both).seconds(), 1.5, 0.01);  // one after the other
}

TEST_F(SwitchCostTest, OneChunkOfAStoppedSessionMovesItLittle) {
  Move(Way::kOut, Place::kMemory, 1e9, 8);
  cost_.LearnMove(Way::kOut, Place::kMemory, kChunk, tandem::Seconds(3600));
  EXPECT_LT(Seconds(Way::kOut, Place::kMemory, Bytes(1'000'000'000)), 3);
  Move(Way::kOut, Place::kMemory, 1e9, 16);
  EXPECT_NEAR(Seconds(Way::kOut, Place::kMemory, Bytes(1'000'000'000)), 1, 0.2);
}

// On a GPU, a chunk that is ordered alone takes several times as long as one of many.
TEST_F(SwitchCostTest, AFewChunksOrderedAloneMoveItLittleWhereSwitchesAreLarge) {
  const Bytes whole = Bytes(kChunk.count * 400);
  Move(Way::kOut, Place::kMemory, 1e9, 400);
  cost_.LearnSwitch(Copies(Way::kOut, Place::kMemory, whole), Takes(1e9, whole));
  Move(Way::kOut, Place::kMemory, 1e9, 400);
  cost_.LearnMove(Way::kOut, Place::kMemory, Bytes(kChunk.count * 2),
                  Takes(1e9, Bytes(kChunk.count * 12)));
  EXPECT_LT(Seconds(Way::kOut, Place::kMemory, Bytes(1'000'000'000)), 1.2);
  // Half of a switch still teaches.
  Move(Way::kOut, Place::kMemory, 1e8, 200);
  EXPECT_NEAR(Seconds(Way::kOut, Place::kMemory, Bytes(100'000'000)), 1, 0.15);
}

TEST_F(SwitchCostTest, FromNoTimeAtAllItFindsBack) {
  Move(Way::kOut, Place::kMemory, 1e30, 8);
  Move(Way::kOut, Place::kMemory, 1e9, 32);
  EXPECT_NEAR(Seconds(Way::kOut, Place::kMemory, Bytes(1'000'000'000)), 1, 0.2);
}

TEST_F(SwitchCostTest, WhatDoesNotGoByBytesIsLearnedFromWholeSwitches) {
  Move(Way::kOut, Place::kMemory, 1e9, 8);
  const Moves moves = Copies(Way::kOut, Place::kMemory, Bytes(1'000'000'000));
  for (int i = 0; i < 20; ++i) cost_.LearnSwitch(moves, Milliseconds(1030));
  EXPECT_NEAR(cost_.Estimate(moves).seconds(), 1.03, 0.001);
  EXPECT_NEAR(cost_.Estimate(Moves()).seconds(), 0.03, 0.001);
}

TEST_F(SwitchCostTest, OneAbsurdSwitchDoesNotRuleTheDay) {
  cost_.LearnSwitch(Moves(), tandem::Seconds(3600));  // a process was stopped for an hour
  EXPECT_LT(cost_.Estimate(Moves()), Milliseconds(10));
}

TEST_F(SwitchCostTest, NoEstimateIsTooLongToBeMultiplied) {
  Move(Way::kOut, Place::kFile, 1e-3, 100);
  const Duration longest = cost_.Estimate(Copies(Way::kOut, Place::kFile, GiB(1 << 20)));
  EXPECT_GT(longest * 1000, longest);
}

// What a program says that it moved is only a claim.
TEST_F(SwitchCostTest, NoClaimedSizeIsTooLarge) {
  const Moves absurd = Copies(Way::kOut, Place::kMemory, Bytes(UINT64_MAX));
  cost_.LearnSwitch(absurd, tandem::Seconds(1));
  Move(Way::kOut, Place::kMemory, 1e9, 4);
  EXPECT_NEAR(Seconds(Way::kOut, Place::kMemory, Bytes(1'000'000'000)), 1, 0.1);
}

TEST_F(SwitchCostTest, AChunkHasTimeForABusMuchSlowerThanItWas) {
  EXPECT_GT(cost_.MostForChunk(Way::kOut), Takes(11e6, kChunk));
  Move(Way::kOut, Place::kMemory, 1e9, 8);
  EXPECT_GT(cost_.MostForChunk(Way::kOut), Takes(1e8, kChunk));
  EXPECT_LT(cost_.MostForChunk(Way::kOut), Takes(1e7, kChunk));
}

}  // namespace
}  // namespace tandem::core
