// Stream-ordered allocation and pools.
#include <atomic>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>

#include "softgpu/ptx/module_head.h"
#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class PoolTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    int supported = 0;
    if (Cu().cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0) !=
            CUDA_SUCCESS ||
        supported == 0) {
      GTEST_SKIP() << "this device has no memory pools";
    }
    pool_ = MakePool(0);
    ASSERT_CU(Cu().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    ASSERT_CU(Cu().cuStreamCreate(&other_, CU_STREAM_NON_BLOCKING));
  }
  void TearDown() override {
    if (pool_ != nullptr) EXPECT_CU(CUDA_SUCCESS, Cu().cuMemPoolDestroy(pool_));
    DriverTest::TearDown();
  }

  CUmemoryPool MakePool(size_t max_bytes) {
    CUmemPoolProps properties = {};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    properties.maxSize = max_bytes;
    CUmemoryPool pool = nullptr;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemPoolCreate(&pool, &properties));
    return pool;
  }
  uint64_t Get(CUmemPool_attribute attribute) {
    uint64_t value = ~uint64_t{0};
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemPoolGetAttribute(pool_, attribute, &value));
    return value;
  }
  void Set(CUmemPool_attribute attribute, uint64_t value) {
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemPoolSetAttribute(pool_, attribute, &value));
  }
  int Flag(CUmemPool_attribute attribute) {
    int value = -1;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemPoolGetAttribute(pool_, attribute, &value));
    return value;
  }
  void SetFlag(CUmemPool_attribute attribute, int value) {
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemPoolSetAttribute(pool_, attribute, &value));
  }
  CUdeviceptr From(CUstream stream, size_t bytes) {
    CUdeviceptr pointer = 0;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemAllocFromPoolAsync(&pointer, bytes, pool_, stream));
    return pointer;
  }
  static size_t FreeBytes() {
    size_t free = 0, total = 0;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemGetInfo_v2(&free, &total));
    return free;
  }

  CUmemoryPool pool_ = nullptr;
  CUstream stream_ = nullptr, other_ = nullptr;
};

// A pool is a device's; only an allocation is some context's work.
TEST_F(PoolTest, NeedsNoContextButToBeUsed) {
  CUcontext popped = nullptr;
  CUmemoryPool fallback = nullptr, now = nullptr;
  CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  const CUmemAccessDesc access = {here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemAccess_flags flags = {};
  ASSERT_CU(Cu().cuCtxPopCurrent_v2(&popped));
  ASSERT_CU(Cu().cuDeviceGetDefaultMemPool(&fallback, 0));
  ASSERT_CU(Cu().cuDeviceSetMemPool(0, pool_));
  ASSERT_CU(Cu().cuDeviceGetMemPool(&now, 0));
  EXPECT_EQ(now, pool_);
  ASSERT_CU(Cu().cuDeviceSetMemPool(0, fallback));
  Set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, kMiB);
  EXPECT_EQ(Get(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), kMiB);
  ASSERT_CU(Cu().cuMemPoolSetAccess(pool_, &access, 1));
  ASSERT_CU(Cu().cuMemPoolGetAccess(&flags, pool_, &here));
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  ASSERT_CU(Cu().cuMemPoolTrimTo(pool_, 0));
  const CUmemoryPool made = MakePool(0);
  ASSERT_CU(Cu().cuMemPoolDestroy(made));
  ASSERT_CU(Cu().cuCtxSetCurrent(context_));
}

TEST_F(PoolTest, MemoryIsUsableInStreamOrder) {
  CUdeviceptr pointer = 0;
  ASSERT_CU(Cu().cuMemAllocAsync(&pointer, 4096, stream_));
  ASSERT_CU(Cu().cuMemsetD8Async(pointer, 0x5a, 4096, stream_));
  std::vector<uint8_t> data(4096);
  ASSERT_CU(Cu().cuMemcpyDtoHAsync_v2(data.data(), pointer, data.size(), stream_));
  ASSERT_CU(Cu().cuMemFreeAsync(pointer, stream_));
  ASSERT_CU(Cu().cuStreamSynchronize(stream_));
  EXPECT_EQ(data, std::vector<uint8_t>(4096, 0x5a));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemFreeAsync(pointer, stream_));
}

TEST_F(PoolTest, TheStreamThatFreedReusesAtOnce) {
  const CUdeviceptr first = From(stream_, kMiB);
  Door door;
  door.HoldIn(stream_);
  ASSERT_CU(Cu().cuMemFreeAsync(first, stream_));
  const uint64_t reserved = Get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  const CUdeviceptr again = From(stream_, kMiB);
  EXPECT_EQ(Get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), reserved);
  door.Open();
  ASSERT_CU(Cu().cuMemFreeAsync(again, stream_));
  ASSERT_CU(Cu().cuStreamSynchronize(stream_));
}

TEST_F(PoolTest, AnotherStreamDoesNotGetWhatIsStillUsed) {
  const CUdeviceptr first = From(stream_, 4 * kMiB);
  Door door;
  door.HoldIn(stream_);
  ASSERT_CU(Cu().cuMemsetD8Async(first, 1, 4 * kMiB, stream_));
  ASSERT_CU(Cu().cuMemFreeAsync(first, stream_));
  SetFlag(CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0);
  const CUdeviceptr second = From(other_, 4 * kMiB);
  EXPECT_TRUE(second + 4 * kMiB <= first || first + 4 * kMiB <= second);
  ASSERT_CU(Cu().cuMemsetD8Async(second, 2, 4 * kMiB, other_));
  ASSERT_CU(Cu().cuStreamSynchronize(other_));
  door.Open();
  ASSERT_CU(Cu().cuStreamSynchronize(stream_));
  EXPECT_EQ(Read(second, 4 * kMiB), std::vector<uint8_t>(4 * kMiB, 2));
  ASSERT_CU(Cu().cuMemFreeAsync(second, other_));
}

// A stream that waits for an event after the free may get the memory; the host does not wait.
TEST_F(PoolTest, OrderMadeByEventsIsOrder) {
  CUevent event = nullptr;
  ASSERT_CU(Cu().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  const CUdeviceptr first = From(stream_, 4 * kMiB);
  Door door;
  door.HoldIn(stream_);
  ASSERT_CU(Cu().cuMemsetD8Async(first, 1, 4 * kMiB, stream_));
  ASSERT_CU(Cu().cuMemFreeAsync(first, stream_));
  ASSERT_CU(Cu().cuEventRecord(event, stream_));
  ASSERT_CU(Cu().cuStreamWaitEvent(other_, event, 0));
  const CUdeviceptr second = From(other_, 4 * kMiB);
  ASSERT_CU(Cu().cuMemsetD8Async(second, 2, 4 * kMiB, other_));
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuStreamQuery(other_));
  door.Open();
  ASSERT_CU(Cu().cuStreamSynchronize(other_));
  EXPECT_EQ(Read(second, 4 * kMiB), std::vector<uint8_t>(4 * kMiB, 2));
  ASSERT_CU(Cu().cuMemFreeAsync(second, other_));
  ASSERT_CU(Cu().cuEventDestroy_v2(event));
}

TEST_F(PoolTest, CountsWhatIsReservedAndUsed) {
  EXPECT_EQ(Get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0u);
  EXPECT_EQ(Get(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0u);
  Set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, ~uint64_t{0});
  EXPECT_EQ(Get(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), ~uint64_t{0});
  const CUdeviceptr pointer = From(stream_, 3 * kMiB);
  EXPECT_GE(Get(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 3 * kMiB);
  EXPECT_GE(Get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), Get(CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
  ASSERT_CU(Cu().cuMemFreeAsync(pointer, stream_));
  ASSERT_CU(Cu().cuStreamSynchronize(stream_));
  EXPECT_EQ(Get(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0u);
  EXPECT_GE(Get(CU_MEMPOOL_ATTR_USED_MEM_HIGH), 3 * kMiB);
  EXPECT_GE(Get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 3 * kMiB);  // below the threshold
  EXPECT_GE(Get(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 3 * kMiB);
  Set(CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
  EXPECT_EQ(Get(CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0u);
  ASSERT_CU(Cu().cuMemPoolTrimTo(pool_, 0));
  EXPECT_EQ(Get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0u);
  Set(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0);
  EXPECT_EQ(Get(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 0u);
}

TEST_F(PoolTest, ReservedMemoryIsTheDevicesUntilItIsGivenBack) {
  if (!HasTheDeviceAlone()) GTEST_SKIP() << kNotAlone;
  const size_t before = FreeBytes();
  const CUdeviceptr pointer = From(stream_, 64 * kMiB);
  ASSERT_CU(Cu().cuStreamSynchronize(stream_));
  EXPECT_LE(FreeBytes(), before - 64 * kMiB);
  ASSERT_CU(Cu().cuMemFreeAsync(pointer, stream_));
  ASSERT_CU(Cu().cuStreamSynchronize(stream_));  // the threshold is zero
  EXPECT_EQ(Get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0u);
  EXPECT_TRUE(IsAbout(FreeBytes(), before)) << before << " before";
}

// What one stream has done with goes back while another stands still.
TEST_F(PoolTest, GivingBackWaitsForNoOtherStream) {
  Door door;
  door.HoldIn(other_);
  const CUdeviceptr pointer = From(stream_, 4 * kMiB);
  ASSERT_CU(Cu().cuMemsetD8Async(pointer, 1, 4 * kMiB, stream_));
  ASSERT_CU(Cu().cuMemFreeAsync(pointer, stream_));
  ASSERT_CU(Cu().cuStreamSynchronize(stream_));
  EXPECT_EQ(Get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0u);
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuStreamQuery(other_));
  door.Open();
}

TEST_F(PoolTest, GivingBackBreaksNoCapture) {
  CUgraph graph = nullptr;
  ASSERT_CU(Cu().cuStreamBeginCapture_v2(other_, CU_STREAM_CAPTURE_MODE_RELAXED));
  const CUdeviceptr pointer = From(stream_, 4 * kMiB);
  ASSERT_CU(Cu().cuMemFreeAsync(pointer, stream_));
  ASSERT_CU(Cu().cuStreamSynchronize(stream_));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamEndCapture(other_, &graph));
  EXPECT_EQ(Get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0u);
  ASSERT_CU(Cu().cuGraphDestroy(graph));
}

TEST_F(PoolTest, WhatIsFreedIsFreedOnce) {
  Set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, ~uint64_t{0});
  const CUdeviceptr pointer = From(stream_, 4 * kMiB);
  ASSERT_CU(Cu().cuMemFreeAsync(pointer, stream_));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemFree_v2(pointer));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemFreeAsync(pointer, stream_));
  EXPECT_EQ(From(stream_, 4 * kMiB), pointer);
  ASSERT_CU(Cu().cuMemFreeAsync(pointer, stream_));
}

TEST_F(PoolTest, TrimmingKeepsWhatIsUsedAndWhatIsAskedFor) {
  Set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, ~uint64_t{0});
  const CUdeviceptr kept = From(stream_, 32 * kMiB), freed = From(stream_, 32 * kMiB);
  ASSERT_CU(Cu().cuMemFreeAsync(freed, stream_));
  ASSERT_CU(Cu().cuStreamSynchronize(stream_));
  const uint64_t reserved = Get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  ASSERT_CU(Cu().cuMemPoolTrimTo(pool_, reserved));
  EXPECT_EQ(Get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), reserved);
  ASSERT_CU(Cu().cuMemPoolTrimTo(pool_, 0));
  EXPECT_GE(Get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * kMiB);
  ASSERT_CU(Cu().cuMemsetD8Async(kept, 7, 32 * kMiB, stream_));
  ASSERT_CU(Cu().cuMemFree_v2(kept));  // also frees what a stream allocated
  if (OnSoftwareGpu()) {               // a card: in a while
    EXPECT_EQ(Get(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0u);
  }
}

TEST_F(PoolTest, HasPoliciesThatAreOnAtFirst) {
  for (const CUmemPool_attribute attribute :
       {CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
        CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES}) {
    EXPECT_EQ(Flag(attribute), 1);
    SetFlag(attribute, 0);
    EXPECT_EQ(Flag(attribute), 0);
  }
}

TEST_F(PoolTest, DevicesHaveADefaultAndACurrentPool) {
  CUmemoryPool standard = nullptr, current = nullptr;
  ASSERT_CU(Cu().cuDeviceGetDefaultMemPool(&standard, 0));
  ASSERT_CU(Cu().cuDeviceGetMemPool(&current, 0));
  EXPECT_EQ(standard, current);
  EXPECT_NE(Cu().cuMemPoolDestroy(standard), CUDA_SUCCESS);
  CUmemoryPool mine = MakePool(0);
  ASSERT_CU(Cu().cuDeviceSetMemPool(0, mine));
  ASSERT_CU(Cu().cuDeviceGetMemPool(&current, 0));
  EXPECT_EQ(current, mine);
  CUdeviceptr pointer = 0;
  CUmemoryPool owner = nullptr;
  ASSERT_CU(Cu().cuMemAllocAsync(&pointer, 4096, stream_));
  ASSERT_CU(Cu().cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pointer));
  EXPECT_EQ(owner, mine);
  // The pool is gone as a pool, and its memory stays until it is freed.
  ASSERT_CU(Cu().cuMemPoolDestroy(mine));
  ASSERT_CU(Cu().cuDeviceGetMemPool(&current, 0));
  EXPECT_EQ(current, standard);
  ASSERT_CU(Cu().cuMemsetD8Async(pointer, 1, 4096, stream_));
  ASSERT_CU(Cu().cuMemFreeAsync(pointer, stream_));
  ASSERT_CU(Cu().cuStreamSynchronize(stream_));
}

TEST_F(PoolTest, TellsWhoMayUseIt) {
  CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  ASSERT_CU(Cu().cuMemPoolGetAccess(&flags, pool_, &here));
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CUmemAccessDesc access = {here, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemPoolSetAccess(pool_, &access, 1));
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;  // never for the device it lies on
  EXPECT_NE(Cu().cuMemPoolSetAccess(pool_, &access, 1), CUDA_SUCCESS);
  access = {{CU_MEM_LOCATION_TYPE_DEVICE, 999}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  EXPECT_NE(Cu().cuMemPoolSetAccess(pool_, &access, 1), CUDA_SUCCESS);
  EXPECT_NE(Cu().cuMemPoolGetAccess(&flags, pool_, &access.location), CUDA_SUCCESS);
  EXPECT_NE(Cu().cuMemPoolGetAccess(nullptr, pool_, &here), CUDA_SUCCESS);
}

TEST_F(PoolTest, StaysBelowItsMaximum) {
  const CUmemoryPool small = MakePool(64 * kMiB);
  CUdeviceptr pointer = 0, more = 0;
  ASSERT_CU(Cu().cuMemAllocFromPoolAsync(&pointer, 32 * kMiB, small, stream_));
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY,
            Cu().cuMemAllocFromPoolAsync(&more, 64 * kMiB, small, stream_));
  EXPECT_EQ(more, 0u);
  ASSERT_CU(Cu().cuMemFreeAsync(pointer, stream_));
  ASSERT_CU(Cu().cuMemPoolDestroy(small));
}

// What a pool only keeps is not in the way of others.
TEST_F(PoolTest, GivesWayWhenMemoryIsShort) {
  if (!HasTheDeviceAlone()) GTEST_SKIP() << kNotAlone;
  Set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, ~uint64_t{0});
  const size_t most = FreeBytes() / 4 * 3;
  const CUdeviceptr pointer = From(stream_, most);
  ASSERT_CU(Cu().cuMemFreeAsync(pointer, stream_));
  ASSERT_CU(Cu().cuStreamSynchronize(stream_));
  CUdeviceptr plain = 0;
  ASSERT_CU(Cu().cuMemAlloc_v2(&plain, most));
  ASSERT_CU(Cu().cuMemFree_v2(plain));
}

// Not only to cuMemAlloc: the pool keeps nearly all there is, and each of these needs more.
TEST_F(PoolTest, GivesWayToEverythingThatNeedsMemory) {
  if (!HasTheDeviceAlone()) GTEST_SKIP() << kNotAlone;
  Set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, ~uint64_t{0});
  const auto fill = [&] {
    size_t free = 0, total = 0;
    ASSERT_CU(Cu().cuMemGetInfo_v2(&free, &total));
    CUdeviceptr pointer = 0;
    for (size_t bytes = free / kMiB * kMiB; pointer == 0 && bytes > 0; bytes -= kMiB) {
      if (Cu().cuMemAllocFromPoolAsync(&pointer, bytes, pool_, stream_) != CUDA_SUCCESS) continue;
      ASSERT_CU(Cu().cuMemFreeAsync(pointer, stream_));
    }
    ASSERT_CU(Cu().cuStreamSynchronize(stream_));
    ASSERT_CU(Cu().cuMemGetInfo_v2(&free, &total));
    EXPECT_LT(free, 32 * kMiB);  // less than any of what follows
  };
  fill();
  CUarray array = nullptr;
  const CUDA_ARRAY_DESCRIPTOR descriptor = {4096, 4096, CU_AD_FORMAT_FLOAT, 4};
  EXPECT_CU(CUDA_SUCCESS, Cu().cuArrayCreate_v2(&array, &descriptor));
  fill();
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemCreate(&handle, 64 * kMiB, &properties, 0));
  fill();
  CUcontext second = nullptr;
  EXPECT_CU(CUDA_SUCCESS, Cu().cuCtxCreate_v2(&second, 0, 0));
  if (second != nullptr) EXPECT_CU(CUDA_SUCCESS, Cu().cuCtxDestroy_v2(second));
  fill();
  const std::string text = PTX_HEAD ".visible .global .align 4 .b8 table[33554432];\n";
  CUmodule module = nullptr;
  EXPECT_CU(CUDA_SUCCESS, Cu().cuModuleLoadData(&module, text.c_str()));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemRelease(handle));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuArrayDestroy(array));
}

// No thread writes to another's block, whichever stream the memory was used in before.
TEST_F(PoolTest, ThreadsShareAPool) {
  const char* text = std::getenv("TANDEM_SEED");
  const uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 0) : std::random_device()();
  SCOPED_TRACE("TANDEM_SEED=" + std::to_string(seed));
  std::atomic<int> wrong = 0;
  const auto work = [&](uint32_t number) {
    std::mt19937_64 random(seed + number);
    CUstream stream = nullptr;
    wrong += Cu().cuCtxSetCurrent(context_) != CUDA_SUCCESS;
    wrong += Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS;
    for (uint32_t i = 0; i < 100; ++i) {
      const size_t words = 1 + random() % (size_t{1} << 17);
      const uint32_t value = number << 16 | i;
      uint32_t first = 0, last = 0;
      CUdeviceptr pointer = 0;
      wrong += Cu().cuMemAllocFromPoolAsync(&pointer, 4 * words, pool_, stream) != CUDA_SUCCESS;
      wrong += Cu().cuMemsetD32Async(pointer, value, words, stream) != CUDA_SUCCESS;
      const CUdeviceptr end = pointer + 4 * (words - 1);
      wrong += Cu().cuMemcpyDtoHAsync_v2(&first, pointer, 4, stream) != CUDA_SUCCESS;
      wrong += Cu().cuMemcpyDtoHAsync_v2(&last, end, 4, stream) != CUDA_SUCCESS;
      wrong += Cu().cuMemFreeAsync(pointer, stream) != CUDA_SUCCESS;
      wrong += Cu().cuStreamSynchronize(stream) != CUDA_SUCCESS;
      wrong += first != value || last != value;
    }
    wrong += Cu().cuStreamDestroy_v2(stream) != CUDA_SUCCESS;
  };
  std::vector<std::thread> threads;
  for (uint32_t number = 1; number <= 4; ++number) threads.emplace_back(work, number);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(Get(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0u);
}

TEST_F(PoolTest, AFreeInOrderTakesPlainMemory) {
  constexpr size_t kBytes = size_t{4} << 20;
  const CUdeviceptr pointer = Allocate(kBytes);
  std::vector<uint8_t> seen(kBytes);
  ASSERT_CU(Cu().cuMemsetD8Async(pointer, 7, kBytes, stream_));
  ASSERT_CU(Cu().cuMemcpyDtoHAsync_v2(seen.data(), pointer, kBytes, stream_));
  ASSERT_CU(Cu().cuMemFreeAsync(pointer, stream_));
  ASSERT_CU(Cu().cuStreamSynchronize(stream_));
  EXPECT_EQ(seen, std::vector<uint8_t>(kBytes, 7));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemFree_v2(pointer));
}

TEST_F(PoolTest, RefusesNonsense) {
  CUdeviceptr pointer = 0;
  CUmemoryPool pool = nullptr;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemAllocAsync(nullptr, 16, stream_));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemAllocAsync(&pointer, 0, stream_));
  EXPECT_EQ(pointer, 0u);
  EXPECT_NE(Cu().cuMemAllocFromPoolAsync(&pointer, 16, nullptr, stream_), CUDA_SUCCESS);
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, Cu().cuMemAllocAsync(&pointer, size_t{1} << 45, stream_));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemPoolCreate(nullptr, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemPoolCreate(&pool, nullptr));
  CUmemPoolProps properties = {};
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemPoolCreate(&pool, &properties));
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.id = 999;
  EXPECT_NE(Cu().cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS);
  EXPECT_NE(Cu().cuDeviceGetMemPool(&pool, 999), CUDA_SUCCESS);
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, Cu().cuDeviceGetDefaultMemPool(&pool, 999));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuDeviceGetMemPool(nullptr, 0));
  EXPECT_NE(Cu().cuDeviceSetMemPool(999, pool_), CUDA_SUCCESS);
  uint64_t value = 1;
  EXPECT_NE(Cu().cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value), CUDA_SUCCESS);
  EXPECT_NE(Cu().cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value),
            CUDA_SUCCESS);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuMemPoolGetAttribute(pool_, static_cast<CUmemPool_attribute>(99), &value));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuMemPoolGetAttribute(pool_, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, nullptr));
  EXPECT_NE(Cu().cuMemPoolSetAccess(pool_, nullptr, 1), CUDA_SUCCESS);
}

}  // namespace
}  // namespace tandem::driver_test
