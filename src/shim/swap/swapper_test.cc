#include "src/shim/swap/swapper_test.h"

#include <set>

namespace tandem::shim {
namespace {

TEST_F(SwapperTest, WhatArrivesOnlyToLeaveAgainIsNotCountedForTheNextLease) {
  AllocateAway(MiB(16), 6);
  driver_.HoldCopies();
  EXPECT_EQ(RestoreSome(MiB(8)), CUDA_SUCCESS);
  EXPECT_EQ(Evict(Bytes()), CUDA_SUCCESS);
  EXPECT_EQ(copied_in_, Bytes());
  EXPECT_EQ(RestoreSome(MiB(16)), CUDA_SUCCESS);
  driver_.LetCopies(16);
  EXPECT_EQ(RestoreAll(MiB(16)), CUDA_SUCCESS);
  EXPECT_EQ(copied_in_, MiB(16));
}

TEST_F(SwapperTest, BringsInAsMuchAtATimeAsThereIsCreditFor) {
  const CUdeviceptr block = AllocateAway(MiB(16), 6);
  driver_.HoldCopies();
  EXPECT_EQ(RestoreSome(MiB(4)), CUDA_SUCCESS);
  EXPECT_EQ(RestoreSome(MiB(4)), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(RestoreSome(MiB(12)), CUDA_SUCCESS);  // two more, while the first is under way
  EXPECT_EQ(driver_.used(), MiB(12).count);
  EXPECT_EQ(memory_.GetView().missing, MiB(16));
  driver_.LetCopies(2);
  EXPECT_EQ(RestoreSome(MiB(12)), CUDA_SUCCESS);
  EXPECT_EQ(memory_.GetView().missing, MiB(8));
  EXPECT_EQ(copied_in_, MiB(8));
  EXPECT_EQ(RestoreSome(kCard), CUDA_SUCCESS);
  EXPECT_EQ(memory_.GetView().next_chunk, Bytes());
  EXPECT_EQ(RestoreSome(kCard), CUDA_ERROR_NOT_READY);
  driver_.LetCopies(2);
  EXPECT_EQ(RestoreSome(kCard), CUDA_SUCCESS);
  EXPECT_EQ(memory_.GetView().missing, Bytes());
  EXPECT_TRUE(Holds(block, MiB(16).count, 6));
}

TEST_F(SwapperTest, WhatIsArrivingCanBeTakenAwayAgain) {
  const CUdeviceptr block = AllocateAway(MiB(16), 7);
  const int copies = driver_.copies();
  driver_.HoldCopies();
  EXPECT_EQ(RestoreSome(MiB(8)), CUDA_SUCCESS);
  ASSERT_EQ(Evict(MiB(4)), CUDA_SUCCESS);
  EXPECT_EQ(driver_.copies(), copies + 2);  // what came in has its copy still
  EXPECT_EQ(driver_.used(), MiB(4).count);
  EXPECT_EQ(RestoreSome(kCard), CUDA_SUCCESS);
  driver_.LetCopies(3);
  ASSERT_EQ(RestoreAll(kCard), CUDA_SUCCESS);
  EXPECT_TRUE(Holds(block, MiB(16).count, 7));
}

TEST_F(SwapperTest, MemoryFreedWhileItArrivesIsGivenBackOnceItIsThere) {
  const CUdeviceptr block = AllocateAway(MiB(8), 8);
  driver_.HoldCopies();
  EXPECT_EQ(RestoreSome(kCard), CUDA_SUCCESS);
  EXPECT_EQ(Free(block), MiB(8));
  Reap();
  EXPECT_EQ(driver_.used(), MiB(8).count);  // a copy still writes to it
  driver_.LetCopies(2);
  Reap();
  EXPECT_EQ(driver_.used(), 0u);
  EXPECT_EQ(memory_.GetView().resident, Bytes());
}

TEST_F(SwapperTest, PeersUseWhatIsThereAndWhatComes) {
  using Devices = std::set<CUdevice>;
  const CUdeviceptr first = Allocate(MiB(8).count), second = Allocate(MiB(4).count);
  ASSERT_EQ(RestoreAll(MiB(8)), CUDA_SUCCESS);
  EXPECT_EQ(driver_.UsersOf(first), Devices{0});
  const auto set_peer = [this](CUdevice peer, bool reaches) {
    MutexLock lock(swapper_.mutex());
    return swapper_.SetPeer(peer, reaches);
  };
  ASSERT_EQ(set_peer(1, true), CUDA_SUCCESS);
  ASSERT_EQ(set_peer(2, true), CUDA_SUCCESS);
  EXPECT_EQ(driver_.UsersOf(first), (Devices{0, 1, 2}));
  EXPECT_EQ(driver_.UsersOf(first + kChunk.count), (Devices{0, 1, 2}));
  ASSERT_EQ(RestoreAll(kCard), CUDA_SUCCESS);
  EXPECT_EQ(driver_.UsersOf(second), (Devices{0, 1, 2}));
  ASSERT_EQ(set_peer(1, false), CUDA_SUCCESS);
  EXPECT_EQ(driver_.UsersOf(first), (Devices{0, 2}));
  // Also what left meanwhile, and comes back.
  ASSERT_EQ(Evict(Bytes()), CUDA_SUCCESS);
  ASSERT_EQ(RestoreAll(kCard), CUDA_SUCCESS);
  EXPECT_EQ(driver_.UsersOf(second), (Devices{0, 2}));
}

TEST_F(SwapperTest, WhatABrokenContextHoldsIsNeitherCopiedNorNeeded) {
  int object = 0;
  const auto broken = reinterpret_cast<CUcontext>(&object);
  Block lost;
  ASSERT_EQ(memory_.AllocateExtent(MiB(8).count, broken, &lost), CUDA_SUCCESS);
  const CUdeviceptr kept = Allocate(MiB(16).count);
  ASSERT_EQ(RestoreAll(kCard), CUDA_SUCCESS);
  Fill(kept, MiB(16).count, 1);
  Open();
  {
    MutexLock lock(swapper_.mutex());
    swapper_.UseContext(broken);
    swapper_.Lose(broken, driver_.context());
    EXPECT_EQ(swapper_.context(), driver_.context());
  }
  EXPECT_EQ(memory_.GetView().need, MiB(16));
  Open();
  ASSERT_EQ(Evict(MiB(16)), CUDA_SUCCESS);
  EXPECT_EQ(driver_.copies(), 0);  // the lost bytes went first
  ASSERT_EQ(Evict(Bytes()), CUDA_SUCCESS);
  EXPECT_EQ(memory_.GetView().missing, MiB(16));
  ASSERT_EQ(RestoreAll(kCard), CUDA_SUCCESS);
  EXPECT_TRUE(Holds(kept, MiB(16).count, 1));
  EXPECT_EQ(Free(lost.address), MiB(8));  // of the limit it had still been part
  EXPECT_EQ(memory_.GetView().need, MiB(16));
}

TEST_F(SwapperTest, WhatIsMappedIsNoLongerCopiedWhenTheLastContextBroke) {
  tandem::shim::Extent* extent = nullptr;
  ASSERT_EQ(memory_.AllocateExtentFor({}, MiB(16).count, &extent), CUDA_SUCCESS);
  ASSERT_EQ(RestoreAll(kCard), CUDA_SUCCESS);
  Open();
  {
    MutexLock lock(swapper_.mutex());
    swapper_.Lose(driver_.context(), nullptr);
    swapper_.LoseUncopied();
  }
  ASSERT_EQ(Evict(Bytes()), CUDA_SUCCESS);
  EXPECT_EQ(driver_.copies(), 0);
  EXPECT_EQ(driver_.used(), 0u);
  EXPECT_EQ(memory_.GetView().missing, MiB(16));  // it is there still, and comes back
}

TEST_F(SwapperTest, TakesOnlyWhatIsAskedAndBringsItBack) {
  const CUdeviceptr block = Allocate(MiB(31).count);
  EXPECT_EQ(memory_.GetView().need, MiB(32));
  ASSERT_EQ(RestoreAll(kCard), CUDA_SUCCESS);
  EXPECT_EQ(copied_in_, Bytes());
  Open();
  Fill(block, MiB(31).count, 1);
  ASSERT_EQ(Evict(MiB(18)), CUDA_SUCCESS);
  EXPECT_EQ(memory_.GetView().resident, MiB(16));  // four chunks of 4 MiB were lacking
  EXPECT_EQ(driver_.used(), MiB(16).count);
  EXPECT_EQ(moved_, std::vector<Bytes>(4, kChunk));
  ASSERT_EQ(RestoreAll(MiB(25)), CUDA_SUCCESS);
  EXPECT_EQ(memory_.GetView().resident, MiB(24));
  ASSERT_EQ(RestoreAll(kCard), CUDA_SUCCESS);
  EXPECT_EQ(copied_in_, MiB(16));
  EXPECT_TRUE(Holds(block, MiB(31).count, 1));
}

TEST_F(SwapperTest, CopiesNothingThatDidNotChange) {
  const CUdeviceptr block = Allocate(MiB(16).count);
  ASSERT_EQ(RestoreAll(kCard), CUDA_SUCCESS);
  ASSERT_EQ(Evict(Bytes()), CUDA_SUCCESS);  // fresh: the gate never opened
  EXPECT_EQ(driver_.copies(), 0);
  ASSERT_EQ(RestoreAll(kCard), CUDA_SUCCESS);
  Open();
  Fill(block, MiB(16).count, 2);
  ASSERT_EQ(Evict(Bytes()), CUDA_SUCCESS);
  EXPECT_EQ(driver_.copies(), 4);
  EXPECT_EQ(memory_.GetView().swapped, MiB(16));
  ASSERT_EQ(RestoreAll(MiB(8)), CUDA_SUCCESS);
  EXPECT_EQ(driver_.copies(), 6);
  ASSERT_EQ(Evict(Bytes()), CUDA_SUCCESS);  // half restored, never exposed: its copies still hold
  EXPECT_EQ(driver_.copies(), 6);
  ASSERT_EQ(RestoreAll(kCard), CUDA_SUCCESS);
  EXPECT_TRUE(Holds(block, MiB(16).count, 2));
}

TEST_F(SwapperTest, FailedCreateIsTriedAgain) {
  const CUdeviceptr block = Allocate(MiB(16).count);
  ASSERT_EQ(RestoreAll(kCard), CUDA_SUCCESS);
  Open();
  Fill(block, MiB(16).count, 3);
  ASSERT_EQ(Evict(Bytes()), CUDA_SUCCESS);
  driver_.FailCreate(3);
  EXPECT_EQ(RestoreAll(kCard), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(RestoreAll(kCard), CUDA_SUCCESS);
  EXPECT_EQ(memory_.GetView().missing, Bytes());
  EXPECT_TRUE(Holds(block, MiB(16).count, 3));
}

TEST_F(SwapperTest, FailedCopiesLoseNothing) {
  const CUdeviceptr block = Allocate(MiB(16).count);
  ASSERT_EQ(RestoreAll(kCard), CUDA_SUCCESS);
  Open();
  Fill(block, MiB(16).count, 4);
  driver_.FailCopy(3, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(Evict(Bytes()), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(memory_.GetView().resident, MiB(8));
  EXPECT_EQ(Evict(Bytes()), CUDA_SUCCESS);
  driver_.FailCopy(2, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(RestoreAll(kCard), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(RestoreAll(kCard), CUDA_SUCCESS);
  EXPECT_TRUE(Holds(block, MiB(16).count, 4));
}

TEST_F(SwapperTest, FreedMemoryGoesBackAndItsAddressesComeAgain) {
  const CUdeviceptr first = Allocate(MiB(16).count);
  ASSERT_EQ(RestoreAll(kCard), CUDA_SUCCESS);
  Open();
  EXPECT_FALSE(Free(first + 512).has_value());
  EXPECT_EQ(Free(first), MiB(16));
  EXPECT_FALSE(Free(first).has_value());
  EXPECT_NE(Allocate(MiB(16).count), first);  // still mapped
  Reap();
  EXPECT_EQ(driver_.used(), 0u);
  EXPECT_EQ(Allocate(MiB(16).count), first);
}

TEST_F(SwapperTest, SmallBlocksShareAPage) {
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(Allocate(5000));
  EXPECT_EQ(memory_.GetView().need, MiB(2));
  for (CUdeviceptr block : blocks) {
    EXPECT_EQ(block % 512, 0u);
    EXPECT_EQ(memory_.Find(block + 4999)->address, block);
    EXPECT_FALSE(memory_.Find(block + 5000).has_value());
  }
  for (CUdeviceptr block : blocks) EXPECT_EQ(Free(block), Bytes());
  EXPECT_EQ(memory_.kept(), MiB(2));
  EXPECT_EQ(memory_.FreePages(0), MiB(2));
  EXPECT_EQ(memory_.GetView().need, Bytes());
}

TEST_F(SwapperTest, AnEmptyPageIsCutAnew) {
  const CUdeviceptr first = Allocate(5000);
  Free(first);
  EXPECT_EQ(Allocate(100000), first);
  EXPECT_EQ(memory_.kept(), Bytes());
  EXPECT_EQ(Allocate(100000), first + (uint64_t{128} << 10));
  EXPECT_EQ(memory_.GetView().need, MiB(2));
}

TEST_F(SwapperTest, OnlySomePagesAreKept) {
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < 12; ++i) blocks.push_back(Allocate(MiB(1).count - 1));  // two a page
  EXPECT_EQ(memory_.GetView().need, MiB(12));
  for (CUdeviceptr block : blocks) Free(block);
  EXPECT_EQ(memory_.kept(), MiB(8));
  EXPECT_EQ(memory_.GetView().need, MiB(8));
  EXPECT_EQ(memory_.FreeContext(driver_.context()), MiB(8));
  EXPECT_EQ(memory_.kept(), Bytes());
}

TEST_F(SwapperTest, PagesThatNobodyTakesAreReleased) {
  std::vector<CUdeviceptr> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(Allocate(MiB(1).count - 1));
  for (CUdeviceptr block : blocks) Free(block);
  bool more = false;
  EXPECT_EQ(memory_.FreeUntakenPages(&more), Bytes());
  EXPECT_TRUE(more);
  for (int i = 0; i < 3; ++i) {  // the test uses one of the three between checks
    Free(Allocate(5000));
    EXPECT_EQ(memory_.FreeUntakenPages(&more), i == 0 ? MiB(4) : Bytes());
    EXPECT_TRUE(more);
  }
  EXPECT_EQ(memory_.FreeUntakenPages(&more), MiB(2));
  EXPECT_FALSE(more);
}

// Everything at once, against a model: what every live block must hold.
TEST_F(SwapperTest, RandomSequencesKeepEveryByte) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  struct Live {
    uint64_t bytes, seed;
  };
  std::map<CUdeviceptr, Live> live;
  const auto check_all = [&] {
    ASSERT_EQ(RestoreAll(kCard), CUDA_SUCCESS);
    ASSERT_EQ(memory_.GetView().missing, Bytes());
    Open();
    for (const auto& [address, block] : live) {
      ASSERT_TRUE(Holds(address, block.bytes, block.seed));
    }
  };
  for (int step = 0; step < 400; ++step) {
    const uint64_t choice = random() % 10;
    if (choice < 4 && memory_.GetView().need < kCard - MiB(16)) {
      const uint64_t bytes =
          random() % 2 == 0 ? 1 + random() % 100000 : MiB(1).count + random() % MiB(15).count;
      const CUdeviceptr address = Allocate(bytes);
      ASSERT_EQ(live.count(address), 0u);
      ASSERT_EQ(RestoreAll(kCard), CUDA_SUCCESS);
      ASSERT_EQ(memory_.GetView().missing, Bytes());
      Open();
      live[address] = {bytes, random()};
      Fill(address, bytes, live[address].seed);
    } else if (choice < 6 && !live.empty()) {
      auto victim = live.begin();
      std::advance(victim, random() % live.size());
      ASSERT_TRUE(Free(victim->first).has_value());
      live.erase(victim);
    } else if (choice < 8) {
      if (random() % 4 == 0) driver_.FailCopy(1 + random() % 4, CUDA_ERROR_UNKNOWN);
      const Bytes target(random() % (kCard.count + 1));
      if (Evict(target) == CUDA_SUCCESS) {
        ASSERT_LE(memory_.GetView().resident, target);
      }
      driver_.FailCopy(0, CUDA_SUCCESS);
    } else if (choice < 9) {
      if (random() % 4 == 0) driver_.FailCreate(1 + random() % 4);
      if (random() % 4 == 0) driver_.FailCopy(1 + random() % 4, CUDA_ERROR_UNKNOWN);
      const Bytes credit(random() % kCard.count);
      if (random() % 2 == 0) {
        (void)RestoreSome(credit);  // and leaves some of it under way
      } else {
        (void)RestoreAll(credit);
      }
      driver_.FailCreate(0);
      driver_.FailCopy(0, CUDA_SUCCESS);
    } else {
      ASSERT_NO_FATAL_FAILURE(check_all());
    }
    ASSERT_EQ(driver_.used(), memory_.GetView().resident.count);
  }
  ASSERT_NO_FATAL_FAILURE(check_all());
}

}  // namespace
}  // namespace tandem::shim
