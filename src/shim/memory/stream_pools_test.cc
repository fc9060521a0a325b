#include "src/shim/memory/stream_pools.h"

#include <gtest/gtest.h>

#include <set>

#include "src/base/bytes.h"
#include "src/shim/testing/fake_driver.h"

namespace tandem::shim {
namespace {

class StreamPoolsTest : public testing::Test {
 protected:
  StreamPoolsTest() { pools_.Created(pool_, Properties()); }

  static CUmemPoolProps Properties(uint64_t max_bytes = 0) {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    properties.maxSize = max_bytes;
    return properties;
  }
  StreamPools::Place In(uintptr_t stream) {
    return {driver_.context(), reinterpret_cast<CUstream>(stream)};
  }
  // 0: refused.
  CUdeviceptr Allocate(Bytes bytes, uintptr_t stream, CUmemoryPool pool = nullptr) {
    CUdeviceptr pointer = 0;
    const auto result =
        pools_.Allocate(pool == nullptr ? pool_ : pool, bytes.count, In(stream), &pointer);
    EXPECT_TRUE(result.has_value());
    EXPECT_EQ(*result == CUDA_SUCCESS, pointer != 0);
    return pointer;
  }
  void Free(CUdeviceptr pointer, uintptr_t stream) {
    EXPECT_EQ(pools_.Free(pointer, In(stream)), CUDA_SUCCESS);
  }
  static uint64_t IdOf(CUdeviceptr pointer) { return pointer + 1; }
  std::optional<StreamPools::Entry> Find(CUdeviceptr pointer) {
    return pools_.Find({pointer, IdOf(pointer)});
  }
  void KeepUpTo(uint64_t bytes) { pools_.Set(pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes); }
  Bytes Get(CUmemPool_attribute attribute) {
    uint64_t value = 0;
    pools_.Add(pool_, attribute, &value);
    return Bytes(value);
  }

  static constexpr uintptr_t kStream = 0x1000, kOther = 0x2000;
  FakeDriver driver_{MiB(8).count};
  const CUmemoryPool pool_ = reinterpret_cast<CUmemoryPool>(0x77);
  uint64_t left_ = MiB(64).count;  // that the source can give
  std::map<CUdeviceptr, uint64_t> out_;
  CUdeviceptr next_ = MiB(1).count;
  StreamPools pools_{&driver_.table(),
                     0,
                     {[this](uint64_t bytes, CUcontext, StreamPools::BlockName* block) {
                        if (bytes > left_) return CUDA_ERROR_OUT_OF_MEMORY;
                        left_ -= bytes;
                        *block = {next_, IdOf(next_)};
                        next_ += bytes;
                        out_[block->pointer] = bytes;
                        return CUDA_SUCCESS;
                      },
                      [this](const StreamPools::BlockName& block) {
                        EXPECT_EQ(block.id, IdOf(block.pointer));
                        left_ += out_.at(block.pointer);
                        out_.erase(block.pointer);
                      }}};
};

TEST_F(StreamPoolsTest, OnlyTheStreamThatFreedGetsWhatIsStillUsed) {
  driver_.HoldEvents(true);
  const CUdeviceptr first = Allocate(MiB(4), kStream);
  Free(first, kStream);
  const CUdeviceptr elsewhere = Allocate(MiB(4), kOther);
  EXPECT_NE(elsewhere, first);
  EXPECT_EQ(Allocate(MiB(4), kStream), first);
  Free(first, kStream);
  driver_.HoldEvents(false);
  EXPECT_EQ(Allocate(MiB(4), kOther), first);  // the work before is done
}

TEST_F(StreamPoolsTest, AStreamThatIsOnlyNamedAsOneThatWentIsAnother) {
  driver_.HoldEvents(true);
  const CUdeviceptr first = Allocate(MiB(4), kStream);
  Free(first, kStream);
  pools_.StreamEnds(reinterpret_cast<CUstream>(kStream));
  EXPECT_NE(Allocate(MiB(4), kStream), first);
}

// The handle means another stream in each thread.
TEST_F(StreamPoolsTest, ThreadsDefaultStreamsAreNotOneStream) {
  driver_.HoldEvents(true);
  const CUdeviceptr first = Allocate(MiB(4), CU_STREAM_PER_THREAD_VALUE);
  Free(first, CU_STREAM_PER_THREAD_VALUE);
  EXPECT_NE(Allocate(MiB(4), CU_STREAM_PER_THREAD_VALUE), first);
}

TEST_F(StreamPoolsTest, ReusesWhatIsNotMuchTooLarge) {
  KeepUpTo(~uint64_t{0});
  const CUdeviceptr large = Allocate(MiB(40), kStream);
  Free(large, kStream);
  const CUdeviceptr small = Allocate(MiB(2), kStream);
  EXPECT_NE(small, large);
  EXPECT_EQ(Allocate(MiB(36), kStream), large);
  EXPECT_EQ(Find(large)->bytes, MiB(36).count);
}

TEST_F(StreamPoolsTest, GivesBackBeyondItsThresholdWhenWorkWasWaitedFor) {
  KeepUpTo(MiB(8).count);
  const CUdeviceptr a = Allocate(MiB(8), kStream), b = Allocate(MiB(8), kStream);
  Free(a, kStream);
  EXPECT_EQ(Get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), MiB(16));
  EXPECT_EQ(Get(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), MiB(8));
  pools_.Synchronized();
  EXPECT_EQ(Get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), MiB(8));
  EXPECT_EQ(out_.count(a), 0u);
  Free(b, kStream);
  pools_.Synchronized();
  EXPECT_EQ(out_.count(b), 1u);  // not above the threshold any more
  pools_.TrimTo(pool_, 0);
  EXPECT_TRUE(out_.empty());
  EXPECT_EQ(Get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), Bytes());
  EXPECT_EQ(Get(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), MiB(16));
  EXPECT_EQ(Get(CU_MEMPOOL_ATTR_USED_MEM_HIGH), MiB(16));
}

TEST_F(StreamPoolsTest, KeepsWhatWorkMayStillUse) {
  driver_.HoldEvents(true);
  const CUdeviceptr pointer = Allocate(MiB(4), kStream);
  Free(pointer, kStream);
  pools_.Synchronized();
  EXPECT_FALSE(pools_.GiveWay(false));
  EXPECT_EQ(out_.count(pointer), 1u);
  driver_.HoldEvents(false);
  pools_.Synchronized();
  EXPECT_TRUE(out_.empty());
}

TEST_F(StreamPoolsTest, GivesWayWhereMemoryIsShort) {
  KeepUpTo(~uint64_t{0});
  const CUmemoryPool other = reinterpret_cast<CUmemoryPool>(0x88);
  pools_.Created(other, Properties());
  Free(Allocate(MiB(40), kStream), kStream);
  EXPECT_NE(Allocate(MiB(60), kStream, other), 0u);
  EXPECT_EQ(Allocate(MiB(10), kStream, other), 0u);
}

// The driver puts one stream's work behind another's rather than to say that memory is out.
TEST_F(StreamPoolsTest, WhereMemoryIsShortAStreamWaitsForTheWorkBefore) {
  driver_.HoldEvents(true);
  const CUdeviceptr pointer = Allocate(MiB(60), kStream);
  Free(pointer, kStream);
  EXPECT_EQ(Allocate(MiB(10), kStream), pointer);  // in its own order, however much too large
  Free(pointer, kStream);
  EXPECT_EQ(driver_.waits(), 0);
  EXPECT_EQ(Allocate(MiB(60), kOther), pointer);
  EXPECT_EQ(driver_.waits(), 1);
}

TEST_F(StreamPoolsTest, WhatIsFreedIsTheProgramsNoMore) {
  KeepUpTo(~uint64_t{0});
  const CUdeviceptr pointer = Allocate(MiB(4), kStream);
  EXPECT_FALSE(Find(pointer)->idle);
  EXPECT_FALSE(pools_.Find({pointer, 12345}).has_value());  // another block, later, at its place
  Free(pointer, kStream);
  EXPECT_TRUE(Find(pointer)->idle);
  EXPECT_FALSE(pools_.Free(pointer, In(kStream)).has_value());
  EXPECT_EQ(Allocate(MiB(4), kStream), pointer);
  EXPECT_FALSE(Find(pointer)->idle);
  pools_.Forget({pointer, 12345});
  EXPECT_TRUE(Find(pointer).has_value());
  pools_.Forget({pointer, IdOf(pointer)});
  EXPECT_FALSE(Find(pointer).has_value());
  EXPECT_EQ(Get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), Bytes());
}

TEST_F(StreamPoolsTest, APoolThatTheDriverKeepsIsKept) {
  KeepUpTo(~uint64_t{0});
  Free(Allocate(MiB(4), kStream), kStream);
  pools_.Destroying(pool_);
  pools_.NotDestroyed(pool_);
  pools_.Synchronized();
  EXPECT_EQ(Get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), MiB(4));
}

TEST_F(StreamPoolsTest, StaysBelowItsMaximum) {
  const CUmemoryPool small = reinterpret_cast<CUmemoryPool>(0x88);
  pools_.Created(small, Properties(MiB(32).count));
  const CUdeviceptr pointer = Allocate(MiB(20), kStream, small);
  EXPECT_EQ(Allocate(MiB(20), kStream, small), 0u);
  Free(pointer, kStream);
  EXPECT_NE(Allocate(MiB(30), kStream, small), 0u);  // in the place of what is idle
  EXPECT_EQ(Allocate(Bytes(~uint64_t{0}), kStream, small), 0u);
}

TEST_F(StreamPoolsTest, ADestroyedPoolsBlocksLiveUntilTheyAreFreed) {
  KeepUpTo(~uint64_t{0});
  const CUdeviceptr used = Allocate(MiB(4), kStream);
  Free(Allocate(MiB(8), kStream), kStream);
  pools_.Destroying(pool_);
  pools_.Synchronized();
  EXPECT_EQ(out_.size(), 1u);
  EXPECT_EQ(Find(used)->pool, pool_);
  Free(used, kStream);
  pools_.Synchronized();
  EXPECT_TRUE(out_.empty());
}

TEST_F(StreamPoolsTest, BlocksGoWithTheirContext) {
  KeepUpTo(~uint64_t{0});
  const CUdeviceptr used = Allocate(MiB(4), kStream);
  Free(Allocate(MiB(8), kStream), kStream);
  pools_.ContextEnds(driver_.context());
  EXPECT_FALSE(Find(used).has_value());
  EXPECT_EQ(Get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), Bytes());
  EXPECT_EQ(out_.size(), 2u);  // it is the context's owner who frees them
  EXPECT_FALSE(pools_.GiveWay(false));
}

TEST_F(StreamPoolsTest, ABlockStaysInItsContext) {
  KeepUpTo(~uint64_t{0});
  const CUdeviceptr first = Allocate(MiB(4), kStream);
  Free(first, kStream);
  int context = 0;
  const StreamPools::Place elsewhere = {reinterpret_cast<CUcontext>(&context), In(kOther).stream};
  CUdeviceptr second = 0;
  EXPECT_EQ(pools_.Allocate(pool_, MiB(4).count, elsewhere, &second), CUDA_SUCCESS);
  EXPECT_NE(second, first);
  pools_.ContextEnds(driver_.context());
  EXPECT_TRUE(Find(second).has_value());
}

TEST_F(StreamPoolsTest, WhatOthersMayUseIsTheDriversAffair) {
  CUdeviceptr pointer = 0;
  bool blocks = false;
  pools_.Shared(pool_, &blocks);
  EXPECT_FALSE(pools_.Allocate(pool_, 4096, In(kStream), &pointer).has_value());
  CUmemPoolProps properties = Properties();
  properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const CUmemoryPool exported = reinterpret_cast<CUmemoryPool>(0x88);
  pools_.Created(exported, properties);
  EXPECT_FALSE(pools_.Allocate(exported, 4096, In(kStream), &pointer).has_value());
  EXPECT_FALSE(pools_.Free(0x5000, In(kStream)).has_value());
}

}  // namespace
}  // namespace tandem::shim
