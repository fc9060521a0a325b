// When freed memory may be used again.
#include "src/shim/memory/free_fence.h"

#include <gtest/gtest.h>

#include <vector>

#include "src/shim/gate/gate.h"
#include "src/shim/testing/fake_driver.h"

namespace tandem::shim {
namespace {

constexpr uint64_t kSlot = uint64_t{512} << 10;  // four in a page

class FreeFenceTest : public testing::Test {
 protected:
  FreeFenceTest()
      : driver_(MiB(64).count),
        tracker_(&driver_.table()),
        memory_(&driver_.table(), MiB(256), MiB(4)),
        fence_(&driver_.table(), 0, &tracker_, &memory_,
               [this](Bytes bytes) { released_ += bytes; }) {
    gate_.Open();
    tracker_.AddContext(driver_.context());
  }

  CUdeviceptr Allocate(uint64_t bytes) {
    if (auto block = memory_.AllocateFromPage(bytes, driver_.context())) return block->address;
    Block block;
    EXPECT_EQ(memory_.AllocateExtent(bytes, driver_.context(), &block), CUDA_SUCCESS);
    return block.address;
  }
  // A page of which every slot is taken.
  std::vector<CUdeviceptr> FillPage() {
    std::vector<CUdeviceptr> blocks;
    for (int i = 0; i < 4; ++i) blocks.push_back(Allocate(kSlot));
    return blocks;
  }
  void Free(CUdeviceptr pointer) {
    EXPECT_EQ(memory_.Free(pointer, memory_.Find(pointer)->id, false), Bytes());
  }
  bool SlotIsFree() { return memory_.AllocateFromPage(kSlot, driver_.context()).has_value(); }
  void Submit() {
    ThreadSlot* const slot = gate_.Enter();
    tracker_.Note(slot, stream_);
    Gate::Leave(slot);
  }

  const CUstream stream_ = reinterpret_cast<CUstream>(0x100);
  FakeDriver driver_;
  Gate gate_;
  WorkTracker tracker_;
  DeviceMemory memory_;
  FreeFence fence_;
  Bytes released_;  // of what is needed
};

TEST_F(FreeFenceTest, NothingIsUsedAgainWhileWorkMayUseIt) {
  const std::vector<CUdeviceptr> page = FillPage();
  const CUdeviceptr large = Allocate(MiB(8).count);
  Submit();
  driver_.HoldEvents(true);
  Free(page[1]);
  Free(large);
  EXPECT_FALSE(memory_.Find(large).has_value());
  EXPECT_EQ(fence_.Step(), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(memory_.GetView().need, MiB(10));  // work that uses it cannot do without
  EXPECT_FALSE(SlotIsFree());
  EXPECT_FALSE(memory_.HasDead());
  driver_.HoldEvents(false);
  EXPECT_EQ(fence_.Step(), CUDA_SUCCESS);
  EXPECT_TRUE(memory_.HasDead());
  EXPECT_EQ(released_, MiB(8));
  EXPECT_EQ(memory_.GetView().need, MiB(2));
  EXPECT_EQ(Allocate(kSlot), page[1]);
  EXPECT_EQ(memory_.retired(), Bytes());
}

TEST_F(FreeFenceTest, WhatIsFreedAfterAFenceWasPutWaitsForTheNext) {
  const std::vector<CUdeviceptr> page = FillPage();
  Submit();
  driver_.HoldEvents(true);
  Free(page[0]);
  EXPECT_EQ(fence_.Step(), CUDA_ERROR_NOT_READY);
  Submit();
  Free(page[1]);
  memory_.ReleaseFenced();  // as if the first had come to pass just now
  EXPECT_EQ(Allocate(kSlot), page[0]);
  EXPECT_FALSE(SlotIsFree());
  driver_.HoldEvents(false);
  EXPECT_EQ(fence_.Step(), CUDA_SUCCESS);
  EXPECT_EQ(Allocate(kSlot), page[1]);
}

TEST_F(FreeFenceTest, WithoutWorkSinceTheLastFenceNoneIsNeeded) {
  const std::vector<CUdeviceptr> page = FillPage();
  Submit();
  Free(page[0]);
  EXPECT_EQ(fence_.Step(), CUDA_SUCCESS);
  driver_.HoldEvents(true);
  Free(page[1]);
  EXPECT_EQ(fence_.Step(), CUDA_SUCCESS);
  Submit();
  Free(page[2]);
  EXPECT_EQ(fence_.Step(), CUDA_ERROR_NOT_READY);
}

TEST_F(FreeFenceTest, ALookFindsAllWorkDoneWithNothingRetired) {
  Submit();
  EXPECT_EQ(fence_.Step(), CUDA_SUCCESS);
  EXPECT_FALSE(fence_.AllDone());
  driver_.HoldEvents(true);
  fence_.Look();
  EXPECT_FALSE(fence_.AllDone());
  Submit();
  driver_.HoldEvents(false);
  fence_.Look();  // behind the first, and then behind the second
  EXPECT_TRUE(fence_.AllDone());
  Submit();
  EXPECT_FALSE(fence_.AllDone());
}

TEST_F(FreeFenceTest, APageStaysWhileOneOfItsSlotsIsRetired) {
  const std::vector<CUdeviceptr> page = FillPage();
  Submit();
  driver_.HoldEvents(true);
  Free(page[0]);
  for (int i = 1; i < 4; ++i) {
    EXPECT_EQ(memory_.Free(page[i], memory_.Find(page[i])->id, true), Bytes());
  }
  EXPECT_EQ(fence_.Step(), CUDA_ERROR_NOT_READY);
  EXPECT_FALSE(memory_.HasDead());
  driver_.HoldEvents(false);
  EXPECT_EQ(memory_.kept(), Bytes());
  EXPECT_EQ(fence_.Step(), CUDA_SUCCESS);
  EXPECT_EQ(memory_.kept(), MiB(2));
}

TEST_F(FreeFenceTest, ASubmissionOnItsWayInIsNotTakenForDone) {
  const std::vector<CUdeviceptr> page = FillPage();
  ThreadSlot* const slot = gate_.Enter();
  tracker_.Note(slot, stream_);
  Free(page[0]);
  EXPECT_EQ(fence_.Step(), CUDA_SUCCESS);  // it was free before that call had begun its work
  driver_.HoldEvents(true);
  Gate::Leave(slot);
  Free(page[1]);
  EXPECT_EQ(fence_.Step(), CUDA_ERROR_NOT_READY);
}

TEST_F(FreeFenceTest, ACaptureIsWaitedFor) {
  const std::vector<CUdeviceptr> page = FillPage();
  Submit();
  driver_.Capture(true);
  Free(page[0]);
  EXPECT_EQ(fence_.Step(), CUDA_ERROR_NOT_READY);
  EXPECT_FALSE(SlotIsFree());
  driver_.Capture(false);
  EXPECT_EQ(fence_.Step(), CUDA_SUCCESS);
  EXPECT_TRUE(SlotIsFree());
}

TEST_F(FreeFenceTest, DrainedWorkIsWorkDone) {
  const std::vector<CUdeviceptr> page = FillPage();
  Submit();
  driver_.HoldEvents(true);
  Free(page[0]);
  EXPECT_EQ(fence_.Step(), CUDA_ERROR_NOT_READY);
  fence_.OnDrained();
  Free(page[1]);
  EXPECT_EQ(fence_.Step(), CUDA_SUCCESS);
  EXPECT_EQ(memory_.retired(), Bytes());
}

TEST_F(FreeFenceTest, AContextTakesItsRetiredBlocksAlong) {
  int object = 0;
  const auto other = reinterpret_cast<CUcontext>(&object);
  const std::vector<CUdeviceptr> page = FillPage();
  Block its;
  ASSERT_EQ(memory_.AllocateExtent(MiB(8).count, other, &its), CUDA_SUCCESS);
  Submit();
  driver_.HoldEvents(true);
  Free(page[0]);
  Free(its.address);
  EXPECT_EQ(fence_.Step(), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(memory_.FreeContext(driver_.context()), MiB(2));
  EXPECT_EQ(memory_.TakeDead().size(), 1u);
  EXPECT_EQ(memory_.retired(), MiB(8));
  EXPECT_EQ(memory_.FreeContext(other), MiB(8));
  EXPECT_EQ(memory_.TakeDead().size(), 1u);
  EXPECT_EQ(memory_.retired(), Bytes());
}

}  // namespace
}  // namespace tandem::shim
