// Virtual memory management.
#include <algorithm>
#include <cstring>

#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

class VmmTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    int supported = 0;
    ASSERT_CU(Cu().cuDeviceGetAttribute(
        &supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    if (supported == 0) GTEST_SKIP() << "the device has no virtual memory management";
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    access_.location = properties_.location;
    access_.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    ASSERT_CU(
        Cu().cuMemGetAllocationGranularity(&page_, &properties_, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  }

  CUmemGenericAllocationHandle Create(size_t bytes) {
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemCreate(&handle, bytes, &properties_, 0));
    return handle;
  }

  CUmemAllocationProp properties_ = {};
  CUmemAccessDesc access_ = {};
  size_t page_ = 0;
};

// Physical memory is a device's, and addresses are the process's: no context is asked for.
TEST_F(VmmTest, NeedsNoContextButToBeUsed) {
  CUcontext popped = nullptr;
  CUdeviceptr pointer = 0;
  CUmemGenericAllocationHandle again = 0;
  CUmemAllocationProp properties = {};
  unsigned long long flags = 0;
  ASSERT_CU(Cu().cuCtxPopCurrent_v2(&popped));
  const CUmemGenericAllocationHandle handle = Create(page_);
  ASSERT_CU(Cu().cuMemAddressReserve(&pointer, page_, 0, 0, 0));
  ASSERT_CU(Cu().cuMemMap(pointer, page_, 0, handle, 0));
  ASSERT_CU(Cu().cuMemSetAccess(pointer, page_, &access_, 1));
  ASSERT_CU(Cu().cuMemGetAccess(&flags, &access_.location, pointer));
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  ASSERT_CU(Cu().cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(pointer)));
  ASSERT_CU(Cu().cuMemGetAllocationPropertiesFromHandle(&properties, again));
  EXPECT_EQ(properties.location.id, 0);
  ASSERT_CU(Cu().cuMemRelease(again));
  {
    const InContext current(context_);
    Write(pointer, Pattern(page_, 61));
    EXPECT_EQ(Read(pointer, page_), Pattern(page_, 61));
  }
  ASSERT_CU(Cu().cuMemUnmap(pointer, page_));
  ASSERT_CU(Cu().cuMemRelease(handle));
  ASSERT_CU(Cu().cuMemAddressFree(pointer, page_));
  ASSERT_CU(Cu().cuCtxSetCurrent(context_));
}

TEST_F(VmmTest, MapsAndKeepsItsBytes) {
  CUdeviceptr pointer = 0;
  ASSERT_CU(Cu().cuMemAddressReserve(&pointer, 4 * page_, 0, 0, 0));
  const auto handle = Create(2 * page_);
  ASSERT_CU(Cu().cuMemMap(pointer + page_, 2 * page_, 0, handle, 0));
  const auto pattern = Pattern(2 * page_, 1);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuMemcpyHtoD_v2(pointer + page_, pattern.data(), pattern.size()));
  ASSERT_CU(Cu().cuMemSetAccess(pointer + page_, 2 * page_, &access_, 1));
  Write(pointer + page_, pattern);
  EXPECT_EQ(Read(pointer + page_, 2 * page_), pattern);
  // Moved to another address, the memory is the same.
  ASSERT_CU(Cu().cuMemUnmap(pointer + page_, 2 * page_));
  ASSERT_CU(Cu().cuMemMap(pointer + 2 * page_, 2 * page_, 0, handle, 0));
  ASSERT_CU(Cu().cuMemSetAccess(pointer + 2 * page_, 2 * page_, &access_, 1));
  EXPECT_EQ(Read(pointer + 2 * page_, 2 * page_), pattern);
  ASSERT_CU(Cu().cuMemUnmap(pointer + 2 * page_, 2 * page_));
  ASSERT_CU(Cu().cuMemRelease(handle));
  ASSERT_CU(Cu().cuMemAddressFree(pointer, 4 * page_));
}

TEST_F(VmmTest, OneCallSpansManyMappings) {
  CUdeviceptr pointer = 0;
  ASSERT_CU(Cu().cuMemAddressReserve(&pointer, 3 * page_, 0, 0, 0));
  for (int i = 0; i < 3; ++i) {
    const auto handle = Create(page_);
    ASSERT_CU(Cu().cuMemMap(pointer + i * page_, page_, 0, handle, 0));
    ASSERT_CU(Cu().cuMemRelease(handle));  // lives until it is unmapped
  }
  ASSERT_CU(Cu().cuMemSetAccess(pointer, 3 * page_, &access_, 1));
  const auto pattern = Pattern(3 * page_, 2);
  Write(pointer, pattern);
  EXPECT_EQ(Read(pointer, 3 * page_), pattern);
  ASSERT_CU(Cu().cuMemUnmap(pointer, 3 * page_));
  ASSERT_CU(Cu().cuMemAddressFree(pointer, 3 * page_));
}

TEST_F(VmmTest, MemoryReturnsWhenTheLastMappingGoes) {
  if (!HasTheDeviceAlone()) GTEST_SKIP() << kNotAlone;
  size_t before = 0, held = 0, after = 0, total = 0;
  ASSERT_CU(Cu().cuMemGetInfo_v2(&before, &total));
  CUdeviceptr pointer = 0;
  ASSERT_CU(Cu().cuMemAddressReserve(&pointer, page_, 0, 0, 0));
  const auto handle = Create(page_);
  ASSERT_CU(Cu().cuMemMap(pointer, page_, 0, handle, 0));
  ASSERT_CU(Cu().cuMemRelease(handle));
  ASSERT_CU(Cu().cuMemGetInfo_v2(&held, &total));
  EXPECT_LE(held + page_, before);
  ASSERT_CU(Cu().cuMemUnmap(pointer, page_));
  ASSERT_CU(Cu().cuMemGetInfo_v2(&after, &total));
  EXPECT_TRUE(IsAbout(after, before)) << after << " after, " << before << " before";
  ASSERT_CU(Cu().cuMemAddressFree(pointer, page_));
}

TEST_F(VmmTest, RefusesNonsense) {
  CUdeviceptr pointer = 0;
  ASSERT_CU(Cu().cuMemAddressReserve(&pointer, 4 * page_, 0, 0, 0));
  const auto handle = Create(2 * page_);
  CUmemGenericAllocationHandle other = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemCreate(&other, page_ + 1, &properties_, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemCreate(&other, page_, nullptr, 0));
  EXPECT_NE(Cu().cuMemMap(pointer, 2 * page_, page_, handle, 0), CUDA_SUCCESS);
  ASSERT_CU(Cu().cuMemMap(pointer, 2 * page_, 0, handle, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemUnmap(pointer, page_));
  EXPECT_NE(Cu().cuMemSetAccess(pointer, 4 * page_, &access_, 1), CUDA_SUCCESS);
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemUnmap(pointer, 4 * page_));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemUnmap(pointer, 2 * page_));  // there is nothing any more
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemRelease(handle));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemRelease(handle));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemAddressFree(pointer, 4 * page_));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemAddressFree(pointer, 4 * page_));
}

TEST_F(VmmTest, SaysWhoMayTouchWhat) {
  CUdeviceptr pointer = 0;
  ASSERT_CU(Cu().cuMemAddressReserve(&pointer, page_, 0, 0, 0));
  const auto handle = Create(page_);
  ASSERT_CU(Cu().cuMemMap(pointer, page_, 0, handle, 0));
  unsigned long long flags = 99;
  ASSERT_CU(Cu().cuMemGetAccess(&flags, &access_.location, pointer));
  EXPECT_EQ(flags, 0u);
  ASSERT_CU(Cu().cuMemSetAccess(pointer, page_, &access_, 1));
  ASSERT_CU(Cu().cuMemGetAccess(&flags, &access_.location, pointer));
  EXPECT_EQ(flags, static_cast<unsigned long long>(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  int count = 0;
  ASSERT_CU(Cu().cuDeviceGetCount(&count));
  if (count > 1) {
    const CUmemLocation other = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
    ASSERT_CU(Cu().cuMemGetAccess(&flags, &other, pointer));
    EXPECT_EQ(flags, 0u);
  }
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemUnmap(pointer, page_));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemRelease(handle));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemAddressFree(pointer, page_));
}

// As allocators do that keep their blocks in one piece: addresses first, memory as it is needed.
TEST_F(VmmTest, GrowsInPlaceShrinksAndGrowsAgain) {
  constexpr uint32_t kSegments = 6;
  const CUfunction add = Kernel("add");
  CUdeviceptr base = 0;
  ASSERT_CU(Cu().cuMemAddressReserve(&base, kSegments * page_, 0, 0, 0));
  const auto at = [&](uint32_t segment) { return base + segment * page_; };
  const auto map = [&](uint32_t segment) {
    const auto handle = Create(page_);
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemMap(at(segment), page_, 0, handle, 0));
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemSetAccess(at(segment), page_, &access_, 1));
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemRelease(handle));
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemsetD32_v2(at(segment), 0, page_ / 4));
  };
  const auto unmap = [&](uint32_t segment) {
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemUnmap(at(segment), page_));
  };
  uint32_t count = 0;
  const auto add_to_all = [&](uint32_t segments, uint32_t value) {
    count = segments * static_cast<uint32_t>(page_ / 4);
    EXPECT_CU(CUDA_SUCCESS, Launch(add, count / 256, 256, nullptr, {&base, &value, &count}));
  };
  for (uint32_t segments = 1; segments <= kSegments; ++segments) {
    map(segments - 1);
    add_to_all(segments, 1);
  }
  ASSERT_CU(Cu().cuCtxSynchronize());
  for (uint32_t segment = 4; segment < kSegments; ++segment) unmap(segment);
  for (uint32_t segment = 4; segment < kSegments; ++segment) map(segment);
  add_to_all(kSegments, 10);
  const std::vector<uint8_t> bytes = Read(base, kSegments * page_);
  std::vector<uint32_t> words(bytes.size() / 4);
  std::memcpy(words.data(), bytes.data(), bytes.size());
  for (uint32_t segment = 0; segment < kSegments; ++segment) {
    const uint32_t expected = segment < 4 ? 10 + kSegments - segment : 10;
    const auto begin = words.begin() + segment * static_cast<ptrdiff_t>(page_ / 4);
    EXPECT_EQ(std::count(begin, begin + static_cast<ptrdiff_t>(page_ / 4), expected),
              static_cast<ptrdiff_t>(page_ / 4))
        << "segment " << segment << " begins with " << *begin;
  }
  for (uint32_t segment = 0; segment < kSegments; ++segment) unmap(segment);
  ASSERT_CU(Cu().cuMemAddressFree(base, kSegments * page_));
}

TEST_F(VmmTest, OneMemoryIsReachedAtTwoAddresses) {
  CUdeviceptr pointer = 0;
  ASSERT_CU(Cu().cuMemAddressReserve(&pointer, 4 * page_, 0, 0, 0));
  const auto handle = Create(2 * page_);
  for (const CUdeviceptr there : {pointer, pointer + 2 * page_}) {
    ASSERT_CU(Cu().cuMemMap(there, 2 * page_, 0, handle, 0));
    ASSERT_CU(Cu().cuMemSetAccess(there, 2 * page_, &access_, 1));
  }
  const auto pattern = Pattern(2 * page_, 5);
  Write(pointer, pattern);
  EXPECT_EQ(Read(pointer + 2 * page_, 2 * page_), pattern);
  ASSERT_CU(Cu().cuMemUnmap(pointer, 2 * page_));
  EXPECT_EQ(Read(pointer + 2 * page_, 2 * page_), pattern);
  ASSERT_CU(Cu().cuMemRelease(handle));
  ASSERT_CU(Cu().cuMemUnmap(pointer + 2 * page_, 2 * page_));
  ASSERT_CU(Cu().cuMemAddressFree(pointer, 4 * page_));
}

// As servers do that leave the card to others for a while.
TEST_F(VmmTest, WhatIsSavedGivenBackAndMadeAnewIsWhereItWas) {
  if (!HasTheDeviceAlone()) GTEST_SKIP() << kNotAlone;
  CUdeviceptr pointer = 0;
  size_t before = 0, asleep = 0, total = 0;
  ASSERT_CU(Cu().cuMemAddressReserve(&pointer, 3 * page_, 0, 0, 0));
  ASSERT_CU(Cu().cuMemGetInfo_v2(&before, &total));
  auto handle = Create(3 * page_);
  ASSERT_CU(Cu().cuMemMap(pointer, 3 * page_, 0, handle, 0));
  ASSERT_CU(Cu().cuMemSetAccess(pointer, 3 * page_, &access_, 1));
  const auto pattern = Pattern(3 * page_, 6);
  Write(pointer, pattern);
  const std::vector<uint8_t> saved = Read(pointer, 3 * page_);
  ASSERT_CU(Cu().cuMemUnmap(pointer, 3 * page_));
  ASSERT_CU(Cu().cuMemRelease(handle));
  ASSERT_CU(Cu().cuMemGetInfo_v2(&asleep, &total));
  EXPECT_TRUE(IsAbout(asleep, before)) << asleep << " after, " << before << " before";
  handle = Create(3 * page_);
  ASSERT_CU(Cu().cuMemMap(pointer, 3 * page_, 0, handle, 0));
  ASSERT_CU(Cu().cuMemSetAccess(pointer, 3 * page_, &access_, 1));
  Write(pointer, saved);
  EXPECT_EQ(Read(pointer, 3 * page_), pattern);
  ASSERT_CU(Cu().cuMemUnmap(pointer, 3 * page_));
  ASSERT_CU(Cu().cuMemRelease(handle));
  ASSERT_CU(Cu().cuMemAddressFree(pointer, 3 * page_));
}

TEST_F(VmmTest, TellsItsHandleAndItsRange) {
  CUdeviceptr pointer = 0, base = 0;
  ASSERT_CU(Cu().cuMemAddressReserve(&pointer, 3 * page_, 0, 0, 0));
  const auto handle = Create(2 * page_);
  CUmemAllocationProp properties = {};
  ASSERT_CU(Cu().cuMemGetAllocationPropertiesFromHandle(&properties, handle));
  EXPECT_EQ(properties.type, properties_.type);
  EXPECT_EQ(properties.location.id, 0);
  ASSERT_CU(Cu().cuMemMap(pointer, 2 * page_, 0, handle, 0));
  ASSERT_CU(Cu().cuMemSetAccess(pointer, 2 * page_, &access_, 1));
  size_t size = 0;
  ASSERT_CU(Cu().cuMemGetAddressRange_v2(&base, &size, pointer + page_ + 5));
  EXPECT_EQ(base, pointer);
  EXPECT_EQ(size, 2 * page_);
  unsigned int type = 0;
  ASSERT_CU(Cu().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer + page_));
  EXPECT_EQ(type, static_cast<unsigned int>(CU_MEMORYTYPE_DEVICE));
  // One handle more, which keeps the memory when the first is gone.
  CUmemGenericAllocationHandle again = 0;
  ASSERT_CU(Cu().cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(pointer + page_)));
  Write(pointer, Pattern(2 * page_, 7));
  ASSERT_CU(Cu().cuMemUnmap(pointer, 2 * page_));
  ASSERT_CU(Cu().cuMemRelease(handle));
  EXPECT_NE(Cu().cuMemGetAddressRange_v2(&base, &size, pointer), CUDA_SUCCESS);
  EXPECT_NE(Cu().cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(pointer)),
            CUDA_SUCCESS);
  ASSERT_CU(Cu().cuMemMap(pointer + page_, 2 * page_, 0, again, 0));
  ASSERT_CU(Cu().cuMemSetAccess(pointer + page_, 2 * page_, &access_, 1));
  EXPECT_EQ(Read(pointer + page_, 2 * page_), Pattern(2 * page_, 7));
  // Addresses in use are not given back.
  EXPECT_NE(Cu().cuMemAddressFree(pointer, 3 * page_), CUDA_SUCCESS);
  ASSERT_CU(Cu().cuMemUnmap(pointer + page_, 2 * page_));
  ASSERT_CU(Cu().cuMemRelease(again));
  ASSERT_CU(Cu().cuMemAddressFree(pointer, 3 * page_));
}

// It belongs to no context.
TEST_F(VmmTest, OutlivesTheContextItWasMadeIn) {
  CUdeviceptr pointer = 0;
  ASSERT_CU(Cu().cuMemAddressReserve(&pointer, page_, 0, 0, 0));
  const auto handle = Create(page_);
  ASSERT_CU(Cu().cuMemMap(pointer, page_, 0, handle, 0));
  ASSERT_CU(Cu().cuMemSetAccess(pointer, page_, &access_, 1));
  const auto pattern = Pattern(page_, 8);
  Write(pointer, pattern);
  if (!MakeContextAnew()) return;
  EXPECT_EQ(Read(pointer, page_), pattern);
  ASSERT_CU(Cu().cuMemUnmap(pointer, page_));
  ASSERT_CU(Cu().cuMemRelease(handle));
  ASSERT_CU(Cu().cuMemAddressFree(pointer, page_));
}

// Memory of one device that only another one may use: that one's copies reach it.
TEST_F(VmmTest, CopiesReachWhatOnlyAnotherDeviceMayUse) {
  int count = 0, can = 0;
  ASSERT_CU(Cu().cuDeviceGetCount(&count));
  if (count < 2) GTEST_SKIP() << "there is only one device";
  ASSERT_CU(Cu().cuDeviceCanAccessPeer(&can, 1, 0));
  if (can == 0) GTEST_SKIP() << "the devices cannot reach each other";
  CUcontext other = nullptr;
  CUdeviceptr pointer = 0;
  const auto handle = Create(page_);
  ASSERT_CU(Cu().cuMemAddressReserve(&pointer, page_, 0, 0, 0));
  ASSERT_CU(Cu().cuMemMap(pointer, page_, 0, handle, 0));
  access_.location.id = 1;
  ASSERT_CU(Cu().cuMemSetAccess(pointer, page_, &access_, 1));
  ASSERT_CU(Cu().cuCtxCreate_v2(&other, 0, 1));
  const auto pattern = Pattern(page_, 3);
  Write(pointer, pattern);
  EXPECT_EQ(Read(pointer, page_), pattern);
  const CUdeviceptr there = Allocate(page_);
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemcpyDtoD_v2(there, pointer, page_));
  EXPECT_EQ(Read(there, page_), pattern);
  // No copy reaches memory that no device may use any more.
  access_.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  ASSERT_CU(Cu().cuMemSetAccess(pointer, page_, &access_, 1));
  EXPECT_NE(Cu().cuMemcpyDtoD_v2(there, pointer, page_), CUDA_SUCCESS);
  EXPECT_CU(CUDA_SUCCESS, Cu().cuCtxDestroy_v2(other));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemUnmap(pointer, page_));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemRelease(handle));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemAddressFree(pointer, page_));
}

TEST_F(VmmTest, OneCallSpansMappingsOfTwoDevices) {
  int count = 0;
  ASSERT_CU(Cu().cuDeviceGetCount(&count));
  if (count < 2) GTEST_SKIP() << "there is only one device";
  CUcontext other = nullptr, popped = nullptr;
  CUdeviceptr pointer = 0;
  ASSERT_CU(Cu().cuCtxCreate_v2(&other, 0, 1));
  ASSERT_CU(Cu().cuCtxPopCurrent_v2(&popped));
  ASSERT_CU(Cu().cuMemAddressReserve(&pointer, 4 * page_, 0, 0, 0));
  for (size_t i = 0; i < 4; ++i) {
    properties_.location.id = i == 1 || i == 2 ? 1 : 0;
    const auto handle = Create(page_);
    ASSERT_CU(Cu().cuMemMap(pointer + i * page_, page_, 0, handle, 0));
    ASSERT_CU(Cu().cuMemRelease(handle));
  }
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemSetAccess(pointer, 3 * page_ + 1, &access_, 1));
  ASSERT_CU(Cu().cuMemSetAccess(pointer, 4 * page_, &access_, 1));
  const auto pattern = Pattern(4 * page_, 9);
  Write(pointer, pattern);
  EXPECT_EQ(Read(pointer, 4 * page_), pattern);
  ASSERT_CU(Cu().cuMemUnmap(pointer, 4 * page_));
  ASSERT_CU(Cu().cuMemAddressFree(pointer, 4 * page_));
  ASSERT_CU(Cu().cuCtxDestroy_v2(other));
}

// Memory of the host's in the place of a device's.
TEST_F(VmmTest, TheHostsMemoryIsMappedToo) {
  int node = -1;
  ASSERT_CU(Cu().cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0));
  if (node < 0) GTEST_SKIP() << "the host's memory is not mapped";
  size_t before = 0, held = 0, total = 0;
  CUdeviceptr pointer = 0;
  const CUfunction add = Kernel("add");
  ASSERT_CU(Cu().cuMemGetInfo_v2(&before, &total));
  properties_.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, node};
  CUmemGenericAllocationHandle handle = 0;
  const CUresult made = Cu().cuMemCreate(&handle, page_, &properties_, 0);
  if (made == CUDA_ERROR_NOT_SUPPORTED || made == CUDA_ERROR_INVALID_VALUE) {
    GTEST_SKIP() << "a driver older than 12.2";
  }
  ASSERT_CU(made);
  ASSERT_CU(Cu().cuMemAddressReserve(&pointer, page_, 0, 0, 0));
  ASSERT_CU(Cu().cuMemMap(pointer, page_, 0, handle, 0));
  CUmemAccessDesc both[] = {access_, access_};
  both[1].location = properties_.location;
  ASSERT_CU(Cu().cuMemSetAccess(pointer, page_, both, 2));
  unsigned long long flags = 0;
  ASSERT_CU(Cu().cuMemGetAccess(&flags, &properties_.location, pointer));
  EXPECT_EQ(flags, static_cast<unsigned long long>(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  ASSERT_CU(Cu().cuMemGetInfo_v2(&held, &total));
  // It takes none of the device's.
  EXPECT_TRUE(!HasTheDeviceAlone() || before < held + page_) << before << " before, " << held;
  auto* const words = reinterpret_cast<volatile uint32_t*>(pointer);
  words[5] = 40;
  uint32_t value = 2, count = 6;
  ASSERT_CU(Launch(add, 1, 32, nullptr, {&pointer, &value, &count}));
  ASSERT_CU(Cu().cuCtxSynchronize());
  EXPECT_EQ(words[5], 42u);
  const CUdeviceptr there = Allocate(page_);
  const auto pattern = Pattern(page_, 4);
  Write(pointer, pattern);
  ASSERT_CU(Cu().cuMemcpy(there, pointer, page_));
  EXPECT_EQ(Read(there, page_), pattern);
  // Who is not let at it, stays out.
  both[0].flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  ASSERT_CU(Cu().cuMemSetAccess(pointer, page_, both, 1));
  ASSERT_CU(Launch(add, 1, 32, nullptr, {&pointer, &value, &count}));
  EXPECT_CU(CUDA_ERROR_ILLEGAL_ADDRESS, Cu().cuCtxSynchronize());
  if (!MakeContextAnew()) return;
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemUnmap(pointer, page_));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemRelease(handle));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemAddressFree(pointer, page_));
}

}  // namespace
}  // namespace tandem::driver_test
