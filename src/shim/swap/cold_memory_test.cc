// What the card has no room for, and what changes places with it.
#include "src/shim/swap/swapper_test.h"

namespace tandem::shim {
namespace {

class ColdMemoryTest : public SwapperTest {
 protected:
  CUresult RestoreAndChill(Bytes credit);
  void Use(CUdeviceptr block, int steps);
  Bytes ExchangeAll(Bytes credit);
};

// Brings in what there is credit for, and makes the rest cold.
CUresult ColdMemoryTest::RestoreAndChill(Bytes credit) {
  MutexLock lock(swapper_.mutex());
  while (memory_.GetView().missing != Bytes()) {
    CUresult result = swapper_.RestoreSome(credit, &copied_in_);
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) {
      result = swapper_.ChillSome(credit);
    }
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) return result;
  }
  swapper_.Expose(Bytes());
  return CUDA_SUCCESS;
}

TEST_F(ColdMemoryTest, WhatThereIsNoRoomForIsReachedOnTheHost) {
  const CUdeviceptr block = Allocate(MiB(24).count);
  ASSERT_EQ(RestoreAndChill(MiB(16)), CUDA_SUCCESS);
  EXPECT_EQ(driver_.used(), MiB(16).count);
  EXPECT_EQ(driver_.host_used(), MiB(8).count);
  const MemoryView view = memory_.GetView();
  EXPECT_EQ(view.resident, MiB(16));
  EXPECT_EQ(view.cold, MiB(8));
  EXPECT_EQ(view.swapped, MiB(8));
  Fill(block, MiB(24).count, 3);
  ASSERT_EQ(Evict(Bytes()), CUDA_SUCCESS);  // cold memory stays where it is
  EXPECT_EQ(driver_.used(), 0u);
  EXPECT_EQ(memory_.GetView().swapped, MiB(24));
  ASSERT_EQ(RestoreAndChill(MiB(8)), CUDA_SUCCESS);
  EXPECT_EQ(copied_in_, MiB(8));
  EXPECT_EQ(driver_.host_used(), MiB(16).count);
  EXPECT_EQ(memory_.GetView().swapped, MiB(16));
  EXPECT_TRUE(Holds(block, MiB(24).count, 3));
  EXPECT_TRUE(Free(block).has_value());
  Reap();
  EXPECT_EQ(driver_.used() + driver_.host_used(), 0u);
  EXPECT_EQ(memory_.GetView().cold, Bytes());
  EXPECT_EQ(memory_.GetView().swapped, Bytes());
}

TEST_F(ColdMemoryTest, WhatIsFreedOrLostNeedsNoPlaceAnywhere) {
  const CUdeviceptr first = Allocate(MiB(8).count);
  Allocate(MiB(16).count);
  ASSERT_EQ(RestoreAndChill(MiB(4)), CUDA_SUCCESS);
  EXPECT_EQ(memory_.GetView().needed_cold, MiB(20));
  EXPECT_TRUE(Free(first).has_value());
  EXPECT_EQ(memory_.GetView().cold, MiB(20));  // until it is unmapped
  EXPECT_EQ(memory_.GetView().needed_cold, MiB(16));
  EXPECT_EQ(memory_.GetView().need, MiB(16));
  Reap();
  EXPECT_EQ(memory_.GetView().needed_cold, MiB(16));
  MutexLock lock(swapper_.mutex());
  swapper_.Lose(driver_.context(), driver_.context());
  EXPECT_EQ(memory_.GetView().cold, MiB(16));
  EXPECT_EQ(memory_.GetView().needed_cold, Bytes());
}

TEST_F(ColdMemoryTest, AChunkThatTheHostHasNoRoomForIsAsBefore) {
  const CUdeviceptr block = AllocateAway(MiB(8), 5);
  driver_.FailCreate(1);
  EXPECT_EQ(RestoreAndChill(Bytes()), CUDA_ERROR_OUT_OF_MEMORY);
  driver_.FailMap(1);
  EXPECT_EQ(RestoreAndChill(Bytes()), CUDA_ERROR_OUT_OF_MEMORY);
  driver_.FailCopy(1, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(RestoreAndChill(Bytes()), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(driver_.host_used(), 0u);
  EXPECT_EQ(memory_.GetView().missing, MiB(8));
  ASSERT_EQ(RestoreAndChill(MiB(4)), CUDA_SUCCESS);
  EXPECT_TRUE(Holds(block, MiB(8).count, 5));
}

TEST_F(ColdMemoryTest, OnlyWhatIsLargerThanTheRoomIsReachedOnTheHost) {
  Allocate(MiB(4).count);
  const CUdeviceptr large = Allocate(MiB(4).count);
  const CUdeviceptr small = Allocate(MiB(2).count);
  ASSERT_EQ(RestoreAndChill(MiB(6)), CUDA_SUCCESS);
  EXPECT_EQ(memory_.GetView().resident, MiB(6));
  EXPECT_EQ(memory_.FindExtent(large)->chunks[0].state, Chunk::State::kCold);
  EXPECT_EQ(memory_.FindExtent(small)->chunks[0].state, Chunk::State::kHere);
}

TEST_F(ColdMemoryTest, ANewRunMayBeginOnTheHost) {
  const CUdeviceptr block = Allocate(MiB(6).count);
  {
    MutexLock lock(swapper_.mutex());
    EXPECT_EQ(swapper_.ChillNew(memory_.FindExtent(block)), CUDA_SUCCESS);
  }
  EXPECT_EQ(driver_.host_used(), MiB(6).count);
  EXPECT_EQ(memory_.GetView().missing, Bytes());
  const CUdeviceptr large = Allocate(MiB(48).count);
  {
    MutexLock lock(swapper_.mutex());
    EXPECT_EQ(swapper_.ChillNew(memory_.FindExtent(large)), CUDA_ERROR_NOT_READY);
  }
  EXPECT_EQ(driver_.host_used(), MiB(6).count);
}

// Several steps of time in which launches name that block.
void ColdMemoryTest::Use(CUdeviceptr block, int steps) {
  for (int i = 0; i < steps; ++i) {
    EXPECT_TRUE(memory_.NoteNamedByLaunch(block + 4096));
    memory_.Age();
  }
}

Bytes ColdMemoryTest::ExchangeAll(Bytes credit) {
  MutexLock lock(swapper_.mutex());
  const Bytes before = swapper_.exchanged();
  for (int i = 0; i < 100 && swapper_.CanExchange(credit); ++i) {
    EXPECT_EQ(swapper_.Exchange(credit), CUDA_SUCCESS);
    EXPECT_LE(memory_.GetView().resident, credit);
    EXPECT_EQ(memory_.GetView().missing, Bytes());
    swapper_.Expose(Bytes());
  }
  EXPECT_FALSE(swapper_.CanExchange(credit));
  return swapper_.exchanged() - before;
}

TEST_F(ColdMemoryTest, WhatLaunchesNameComesOntoTheCardForWhatTheyDoNot) {
  const CUdeviceptr idle = Allocate(MiB(24).count);
  const CUdeviceptr used = Allocate(MiB(24).count);
  ASSERT_EQ(RestoreAndChill(MiB(32)), CUDA_SUCCESS);
  Fill(idle, MiB(24).count, 1);
  Fill(used, MiB(24).count, 2);
  EXPECT_EQ(ExchangeAll(MiB(32)), Bytes());
  Use(used, 8);
  EXPECT_EQ(ExchangeAll(MiB(32)), MiB(16));
  EXPECT_EQ(driver_.used(), MiB(32).count);
  EXPECT_EQ(driver_.host_used(), MiB(16).count);
  for (const Chunk& chunk : memory_.FindExtent(used)->chunks) EXPECT_TRUE(chunk.resident());
  EXPECT_TRUE(Holds(idle, MiB(24).count, 1));
  EXPECT_TRUE(Holds(used, MiB(24).count, 2));
  EXPECT_TRUE(Free(idle).has_value());
  EXPECT_EQ(ExchangeAll(MiB(32)), Bytes());
}

TEST_F(ColdMemoryTest, WhatIsUsedByTurnsStaysWhereItIs) {
  std::vector<CUdeviceptr> blocks(12);
  for (CUdeviceptr& block : blocks) block = Allocate(MiB(4).count);
  ASSERT_EQ(RestoreAndChill(MiB(32)), CUDA_SUCCESS);
  for (int i = 0; i < 100; ++i) {
    Use(blocks[i % blocks.size()], 1);
    EXPECT_EQ(ExchangeAll(MiB(32)), Bytes()) << i;
  }
  for (int i = 0; i < 100; ++i) {  // and all of it
    for (const CUdeviceptr block : blocks) EXPECT_TRUE(memory_.NoteNamedByLaunch(block));
    memory_.Age();
    EXPECT_EQ(ExchangeAll(MiB(32)), Bytes()) << i;
  }
}

TEST_F(ColdMemoryTest, WhatIsColdComesWhereThereIsRoom) {
  const CUdeviceptr first = Allocate(MiB(16).count);
  const CUdeviceptr second = Allocate(MiB(8).count);
  ASSERT_EQ(RestoreAndChill(MiB(16)), CUDA_SUCCESS);
  Fill(second, MiB(8).count, 4);
  Use(second, 8);
  for (int i = 0; i < 8; ++i) Use(first, 1);
  EXPECT_TRUE(Free(first).has_value());
  Reap();
  Use(second, 8);
  EXPECT_EQ(ExchangeAll(MiB(16)), MiB(8));
  EXPECT_EQ(driver_.host_used(), 0u);
  EXPECT_TRUE(Holds(second, MiB(8).count, 4));
}

TEST_F(ColdMemoryTest, WhatNothingHasToLeaveForComesHoweverColdItIs) {
  const CUdeviceptr first = Allocate(MiB(16).count);
  const CUdeviceptr second = Allocate(MiB(24).count);
  ASSERT_EQ(RestoreAndChill(MiB(16)), CUDA_SUCCESS);
  Fill(second, MiB(24).count, 4);
  EXPECT_TRUE(Free(first).has_value());
  Reap();
  EXPECT_EQ(ExchangeAll(MiB(16)), MiB(16));
  EXPECT_EQ(driver_.host_used(), MiB(8).count);
  EXPECT_TRUE(Holds(second, MiB(24).count, 4));
}

TEST_F(ColdMemoryTest, WhatIsSmallComesWhereThereIsNoRoomForWhatIsLarge) {
  const CUdeviceptr here = Allocate(MiB(8).count);
  const CUdeviceptr large = Allocate(MiB(4).count);
  const CUdeviceptr small = Allocate(MiB(2).count);
  ASSERT_EQ(RestoreAndChill(MiB(8)), CUDA_SUCCESS);
  Fill(small, MiB(2).count, 4);
  for (int i = 0; i < 8; ++i) {
    for (const CUdeviceptr block : {here, large}) EXPECT_TRUE(memory_.NoteNamedByLaunch(block));
    Use(small, 1);
  }
  Use(large, 2);  // hotter than the small one, but not than what it would have to push out
  EXPECT_EQ(ExchangeAll(MiB(10)), MiB(2));
  EXPECT_EQ(memory_.FindExtent(large)->chunks[0].state, Chunk::State::kCold);
  EXPECT_TRUE(Holds(small, MiB(2).count, 4));
}

TEST_F(ColdMemoryTest, TheHottestOfWhatIsColdComesFirst) {
  const CUdeviceptr idle = Allocate(MiB(8).count);
  const CUdeviceptr used = Allocate(MiB(8).count);
  ASSERT_EQ(RestoreAndChill(Bytes()), CUDA_SUCCESS);
  Fill(idle, MiB(8).count, 1);
  Fill(used, MiB(8).count, 2);
  Use(used, 1);
  {
    MutexLock lock(swapper_.mutex());
    EXPECT_TRUE(swapper_.Thaw(MiB(10)));
  }
  EXPECT_EQ(memory_.GetView().missing, MiB(8));
  {
    MutexLock lock(swapper_.mutex());
    driver_.FailCopy(1, CUDA_ERROR_UNKNOWN);
    EXPECT_FALSE(swapper_.Thaw(MiB(4)));  // what cannot leave stays
    EXPECT_FALSE(swapper_.Thaw(MiB(2)));
  }
  ASSERT_EQ(RestoreAndChill(MiB(8)), CUDA_SUCCESS);
  for (const Chunk& chunk : memory_.FindExtent(used)->chunks) EXPECT_TRUE(chunk.resident());
  EXPECT_EQ(driver_.host_used(), MiB(8).count);
  EXPECT_TRUE(Holds(idle, MiB(8).count, 1));
  EXPECT_TRUE(Holds(used, MiB(8).count, 2));
}

TEST_F(ColdMemoryTest, WhatTheHostHasNoRoomForComesBackFromAnExchange) {
  const CUdeviceptr idle = Allocate(MiB(16).count);
  const CUdeviceptr used = Allocate(MiB(16).count);
  ASSERT_EQ(RestoreAndChill(MiB(16)), CUDA_SUCCESS);
  Fill(idle, MiB(16).count, 1);
  Fill(used, MiB(16).count, 2);
  Use(used, 8);
  driver_.LimitHost(MiB(8));  // others have taken it since
  MutexLock lock(swapper_.mutex());
  EXPECT_EQ(swapper_.Exchange(MiB(16)), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(memory_.GetView().missing, Bytes());
  EXPECT_EQ(memory_.GetView().resident, MiB(16));
  EXPECT_EQ(swapper_.exchanged(), Bytes());
  EXPECT_TRUE(Holds(idle, MiB(16).count, 1));
  EXPECT_TRUE(Holds(used, MiB(16).count, 2));
}

TEST_F(ColdMemoryTest, WhatTheCardRefusesInAnExchangeGoesBack) {
  const CUdeviceptr first = Allocate(MiB(16).count);
  const CUdeviceptr second = Allocate(MiB(16).count);
  ASSERT_EQ(RestoreAndChill(MiB(16)), CUDA_SUCCESS);
  Fill(second, MiB(16).count, 4);
  EXPECT_TRUE(Free(first).has_value());
  Reap();
  CUmemAllocationProp anything{};
  CUmemGenericAllocationHandle others = 0;
  ASSERT_EQ(driver_.table().cuMemCreate(&others, MiB(56).count, &anything, 0), CUDA_SUCCESS);
  MutexLock lock(swapper_.mutex());
  EXPECT_EQ(swapper_.Exchange(MiB(16)), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(memory_.GetView().missing, Bytes());
  EXPECT_EQ(memory_.GetView().resident, MiB(8));
  EXPECT_TRUE(Holds(second, MiB(16).count, 4));
  ASSERT_EQ(driver_.table().cuMemRelease(others), CUDA_SUCCESS);
}

TEST_F(ColdMemoryTest, AnExchangeThatFailsLosesNothing) {
  const CUdeviceptr idle = Allocate(MiB(16).count);
  const CUdeviceptr used = Allocate(MiB(16).count);
  ASSERT_EQ(RestoreAndChill(MiB(16)), CUDA_SUCCESS);
  Fill(idle, MiB(16).count, 1);
  Fill(used, MiB(16).count, 2);
  Use(used, 8);
  for (int nth = 1; nth <= 16; ++nth) {
    driver_.FailCreate(nth);
    driver_.FailMap(nth + 1);
    driver_.FailCopy(nth, CUDA_ERROR_UNKNOWN);
    {
      MutexLock lock(swapper_.mutex());
      swapper_.Exchange(MiB(16));
    }
    driver_.FailCreate(0);
    driver_.FailMap(0);
    driver_.FailCopy(0, CUDA_SUCCESS);
    ASSERT_EQ(RestoreAndChill(MiB(16)), CUDA_SUCCESS);
    EXPECT_TRUE(Holds(idle, MiB(16).count, 1)) << nth;
    EXPECT_TRUE(Holds(used, MiB(16).count, 2)) << nth;
    EXPECT_LE(memory_.GetView().resident, MiB(16));
  }
}

}  // namespace
}  // namespace tandem::shim
