// Virtual memory management.
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
  EXPECT_EQ(after, before);
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
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemUnmap(pointer, 4 * page_));
  EXPECT_NE(Cu().cuMemSetAccess(pointer, 4 * page_, &access_, 1), CUDA_SUCCESS);
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemUnmap(pointer, 2 * page_));
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
  // What nobody may use any more, nobody's copies reach.
  access_.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  ASSERT_CU(Cu().cuMemSetAccess(pointer, page_, &access_, 1));
  EXPECT_NE(Cu().cuMemcpyDtoD_v2(there, pointer, page_), CUDA_SUCCESS);
  EXPECT_CU(CUDA_SUCCESS, Cu().cuCtxDestroy_v2(other));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemUnmap(pointer, page_));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemRelease(handle));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemAddressFree(pointer, page_));
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
  EXPECT_LT(before - held, page_);  // it takes none of the device's
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
  MakeContextAnew();
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemUnmap(pointer, page_));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemRelease(handle));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemAddressFree(pointer, page_));
}

}  // namespace
}  // namespace tandem::driver_test
