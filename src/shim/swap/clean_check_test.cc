// Copies that are kept while the program runs, and what leaves for them.
#include "src/shim/swap/clean_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "src/shim/swap/swapper.h"
#include "src/shim/testing/fake_driver.h"

namespace tandem::shim {
namespace {

constexpr Bytes kLargeCard = MiB(128);
constexpr Bytes kSome = MiB(16);  // four chunks

class CleanCheckTest : public testing::Test {
 protected:
  CleanCheckTest()
      : driver_(kLargeCard.count),
        memory_(&driver_.table(), MiB(256), kChunk),
        swapper_(&driver_.table(), 0, &memory_, kChunk) {
    driver_.RunKernels(0);
    MutexLock lock(swapper_.mutex());
    swapper_.UseContext(driver_.context());
  }
  ~CleanCheckTest() override {
    MutexLock lock(swapper_.mutex());
    swapper_.UseContext(nullptr);  // which gives back what it had there
  }

  CUdeviceptr Allocate(Bytes bytes) {
    Block block;
    EXPECT_EQ(memory_.AllocateExtent(bytes.count, driver_.context(), &block), CUDA_SUCCESS);
    return block.address;
  }
  // Returns how much was copied.
  Bytes Leave(Bytes target = Bytes()) {
    Bytes sum;
    MutexLock lock(swapper_.mutex());
    EXPECT_EQ(swapper_.Evict(target, [&](Bytes copied) { sum += copied; }), CUDA_SUCCESS);
    EXPECT_LE(memory_.GetView().resident, target);
    return sum;
  }
  void ComeBack(Bytes keep = kLargeCard) {
    MutexLock lock(swapper_.mutex());
    Bytes copied;
    while (memory_.GetView().missing != Bytes()) {
      const CUresult result = swapper_.RestoreSome(kLargeCard, &copied);
      ASSERT_TRUE(result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) << result;
    }
    swapper_.Expose(keep);
  }
  // Lets it leave and come back until the cost of a copy and of a hash is known, and its
  // fingerprint.
  void LearnCosts(Bytes keep = kLargeCard) {
    for (int i = 0; i < 3; ++i) {
      ComeBack(keep);
      Leave();
    }
    ComeBack(keep);
  }

  ptrdiff_t KeptCopies() {
    const std::vector<DeviceMemory::Place> places = memory_.Resident();
    return std::count_if(places.begin(), places.end(), [](const DeviceMemory::Place& place) {
      return place.chunk->host != nullptr;
    });
  }

  FakeDriver driver_;
  DeviceMemory memory_;
  Swapper swapper_;
};

uint64_t& WordAt(CUdeviceptr address) {
  return *reinterpret_cast<uint64_t*>(address);
}

TEST_F(CleanCheckTest, WhatWasOnlyReadIsNotCopiedAgain) {
  const CUdeviceptr block = Allocate(kSome);
  ComeBack();
  WordAt(block + 8) = 7;
  LearnCosts();
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_EQ(Leave(), Bytes());
    EXPECT_EQ(memory_.GetView().swapped, kSome);
    ComeBack();
    EXPECT_EQ(memory_.GetView().swapped, Bytes());
    EXPECT_EQ(WordAt(block + 8), 7u);
  }
}

TEST_F(CleanCheckTest, WhatWasWrittenToIsCopiedWhoeverWrote) {
  const CUdeviceptr block = Allocate(kSome);
  LearnCosts();
  for (uint64_t turn = 1; turn < 8; ++turn) {
    WordAt(block + kChunk.count + 8 * turn) += turn;
    EXPECT_EQ(Leave(), kChunk);
    ComeBack();
    EXPECT_EQ(WordAt(block + kChunk.count + 8 * turn), turn);
  }
}

TEST_F(CleanCheckTest, WhatIsWrittenInATurnWithoutADepartureIsSeenLater) {
  const CUdeviceptr block = Allocate(kSome);
  LearnCosts();
  WordAt(block) = 8;  // and it stays on the card
  ComeBack();
  EXPECT_EQ(Leave(), kChunk);
  ComeBack();
  EXPECT_EQ(WordAt(block), 8u);
}

TEST_F(CleanCheckTest, WhatIsWrittenOnTheHostIsNotTakenForWhatItWasBefore) {
  const CUdeviceptr block = Allocate(kSome);
  LearnCosts();
  EXPECT_EQ(Leave(), Bytes());
  {
    MutexLock lock(swapper_.mutex());
    const auto piece = swapper_.FindToWrite(block, kLargeCard);
    ASSERT_TRUE(piece.has_value());
    ASSERT_NE(piece->host, nullptr);
    *reinterpret_cast<uint64_t*>(piece->host) = 5;
  }
  ComeBack();
  EXPECT_EQ(WordAt(block), 5u);
  WordAt(block) = 0;  // as it was when its fingerprint was taken
  EXPECT_EQ(Leave(), kChunk);
  ComeBack();
  EXPECT_EQ(WordAt(block), 0u);
}

TEST_F(CleanCheckTest, AFingerprintOfAnEarlierDepartureIsForgotten) {
  const CUdeviceptr block = Allocate(kSome);
  LearnCosts();
  EXPECT_EQ(Leave(), Bytes());  // looked at
  ComeBack(Bytes());            // and its copy is given up
  driver_.RunKernels(1e6);
  WordAt(block) = 6;
  for (int turn = 0; turn < 4; ++turn) {
    Leave();
    ComeBack();
    EXPECT_EQ(WordAt(block), 6u);
  }
}

TEST_F(CleanCheckTest, WhatIsModifiedEveryTimeIsNotLookedAtEveryTime) {
  const CUdeviceptr block = Allocate(kSome);
  LearnCosts();
  const int before = driver_.launches();
  for (uint64_t turn = 1; turn <= 32; ++turn) {
    for (uint64_t at = 0; at < kSome.count; at += kChunk.count) WordAt(block + at) = turn;
    EXPECT_EQ(Leave(), kSome);
    ComeBack();
    EXPECT_EQ(WordAt(block), turn);
  }
  EXPECT_LT(driver_.launches() - before, 16);
}

TEST_F(CleanCheckTest, WhatWasNotModifiedLeavesFirst) {
  const CUdeviceptr block = Allocate(kSome);
  LearnCosts();
  const uint64_t last = kSome.count - kChunk.count;
  WordAt(block + last) = 1;  // the end would be the first to leave
  EXPECT_EQ(Leave(), kChunk);
  ComeBack();
  EXPECT_EQ(Leave(kSome - kChunk), Bytes());
  EXPECT_TRUE(driver_.IsMapped(block + last));
}

TEST_F(CleanCheckTest, NothingIsKeptBeyondWhatIsAllowed) {
  Allocate(kSome);
  LearnCosts(MiB(8));
  EXPECT_EQ(Leave(), MiB(8));
  ComeBack(Bytes());
  EXPECT_EQ(Leave(), kSome);
}

TEST_F(CleanCheckTest, KeptCopiesGoWhenLessMayBeKept) {
  Allocate(kSome);
  LearnCosts();
  {
    MutexLock lock(swapper_.mutex());
    EXPECT_FALSE(swapper_.HasReturned());
    swapper_.Keep(MiB(4));
    EXPECT_TRUE(swapper_.HasReturned());
  }
  EXPECT_EQ(Leave(), MiB(12));
}

TEST_F(CleanCheckTest, KeptCopiesHereAndThereDoNotHoldAllOfTheHostMemoryThatWasTaken) {
  const Bytes all = MiB(128);
  const CUdeviceptr block = Allocate(all);
  LearnCosts();
  for (int turn = 0; turn < 2; ++turn) {
    Leave();
    ComeBack();
  }
  for (uint64_t at = 0; at < all.count; at += 2 * kChunk.count) WordAt(block + at) = 3;
  Leave();
  ComeBack();
  MutexLock lock(swapper_.mutex());
  swapper_.Keep(MiB(64));  // those that were modified go, from every mapping
  EXPECT_EQ(KeptCopies(), 16);
  swapper_.Trim({MiB(32)});
  EXPECT_EQ(KeptCopies(), 0);
}

TEST_F(CleanCheckTest, KeptCopiesAreThePlacesOfOthers) {
  const Bytes place = MiB(64);  // what the arena makes at a time
  const CUdeviceptr others = Allocate(MiB(32)), block = Allocate(place);
  for (int i = 0; i < 3; ++i) {
    ComeBack();
    Leave(MiB(32));
  }
  ComeBack();
  for (uint64_t at = 0; at < place.count; at += kChunk.count) WordAt(block + at) = 5;
  EXPECT_EQ(Leave(MiB(32)), place);
  ComeBack();
  WordAt(others + 8) = 6;
  EXPECT_EQ(Leave(place), MiB(32));  // those that were never modified
  EXPECT_EQ(driver_.registered(), place.count);
  ComeBack();
  EXPECT_EQ(WordAt(others + 8), 6u);
  Leave();
  ComeBack();
  EXPECT_EQ(WordAt(others + 8), 6u);
  for (uint64_t at = 0; at < place.count; at += kChunk.count) EXPECT_EQ(WordAt(block + at), 5u);
}

TEST_F(CleanCheckTest, WhereAHashCostsMoreThanACopyThereIsNone) {
  driver_.RunKernels(1e6);
  Allocate(kSome);
  LearnCosts();
  const int before = driver_.launches();
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_EQ(Leave(), kSome);
    ComeBack();
  }
  EXPECT_LE(driver_.launches() - before, 1);
}

TEST_F(CleanCheckTest, WhatALastBrokenContextMayHaveWrittenDoesNotComeBackOlder) {
  tandem::shim::Extent* extent = nullptr;
  ASSERT_EQ(memory_.AllocateExtentFor({}, kSome.count, &extent), CUDA_SUCCESS);
  LearnCosts();
  WordAt(extent->address) = 9;
  MutexLock lock(swapper_.mutex());
  swapper_.Lose(driver_.context(), nullptr);
  swapper_.LoseUncopied();
  for (const Chunk& chunk : extent->chunks) EXPECT_EQ(chunk.host, nullptr);
}

TEST_F(CleanCheckTest, AKernelThatDoesNotLoadIsDoneWithout) {
  driver_.table().cuModuleLoadData = [](CUmodule*, const void*) -> CUresult {
    return CUDA_ERROR_OUT_OF_MEMORY;
  };
  const CUdeviceptr block = Allocate(kSome);
  ComeBack();
  WordAt(block) = 7;
  LearnCosts();
  EXPECT_EQ(Leave(), kSome);
  ComeBack();
  EXPECT_EQ(WordAt(block), 7u);
  EXPECT_EQ(driver_.launches(), 0);
}

}  // namespace
}  // namespace tandem::shim
