// A scene for the swapper's tests: a card of 64 MiB, and blocks with contents that can be known
// again.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "src/shim/swap/swapper.h"
#include "src/shim/testing/fake_driver.h"

namespace tandem::shim {

class SwapperTest : public testing::Test {
 protected:
  SwapperTest()
      : driver_(kCard.count),
        memory_(&driver_.table(), MiB(256), kChunk),
        swapper_(&driver_.table(), 0, &memory_, kChunk) {
    MutexLock lock(swapper_.mutex());
    swapper_.UseContext(driver_.context());
  }

  CUdeviceptr Allocate(uint64_t bytes) {
    if (auto block = memory_.AllocateFromPage(bytes, driver_.context())) return block->address;
    Block block;
    EXPECT_EQ(memory_.AllocateExtent(bytes, driver_.context(), &block), CUDA_SUCCESS);
    return block.address;
  }
  CUresult Evict(Bytes target) {
    MutexLock lock(swapper_.mutex());
    moved_.clear();
    return swapper_.Evict(target, [this](Bytes copied) { moved_.push_back(copied); });
  }
  CUresult RestoreAll(Bytes credit) {
    MutexLock lock(swapper_.mutex());
    swapper_.Reap();  // as the agent does first: freed memory still counts against the credit
    for (;;) {
      const MemoryView view = memory_.GetView();
      if (view.missing == Bytes() || view.resident + view.next_chunk > credit) return CUDA_SUCCESS;
      const CUresult result = swapper_.RestoreSome(credit, &copied_in_);
      if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) return result;
    }
  }
  CUresult RestoreSome(Bytes credit) {
    MutexLock lock(swapper_.mutex());
    return swapper_.RestoreSome(credit, &copied_in_);
  }
  // A block with contents of which nothing is on the card.
  CUdeviceptr AllocateAway(Bytes bytes, uint64_t seed);
  void Open() {
    MutexLock lock(swapper_.mutex());
    swapper_.Expose(Bytes());
  }
  std::optional<Bytes> Free(CUdeviceptr block) {  // all work being done
    const auto known = memory_.Find(block);
    return known.has_value() ? memory_.Free(block, known->id, true) : std::nullopt;
  }
  void Reap() {
    MutexLock lock(swapper_.mutex());
    swapper_.Reap();
  }

  FakeDriver driver_;
  DeviceMemory memory_;
  Swapper swapper_;
  Bytes copied_in_;
  std::vector<Bytes> moved_;
};

inline void Fill(CUdeviceptr address, uint64_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (uint64_t at = 0; at + 8 <= bytes; at += 512) {
    const uint64_t word = random();
    std::memcpy(reinterpret_cast<void*>(address + at), &word, 8);
  }
}

inline bool Holds(CUdeviceptr address, uint64_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (uint64_t at = 0; at + 8 <= bytes; at += 512) {
    uint64_t word = 0;
    std::memcpy(&word, reinterpret_cast<const void*>(address + at), 8);
    if (word != random()) return false;
  }
  return true;
}

inline CUdeviceptr SwapperTest::AllocateAway(Bytes bytes, uint64_t seed) {
  const CUdeviceptr block = Allocate(bytes.count);
  EXPECT_EQ(RestoreAll(kCard), CUDA_SUCCESS);
  Open();
  Fill(block, bytes.count, seed);
  EXPECT_EQ(Evict(Bytes()), CUDA_SUCCESS);
  return block;
}

}  // namespace tandem::shim
