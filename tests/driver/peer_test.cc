// Several devices in one program, and settings that only some devices heed.
#include <atomic>
#include <cstring>
#include <thread>

#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

using PeerTest = DriverTest;
using SettingsTest = DriverTest;

TEST_F(PeerTest, CopiesBetweenDevices) {
  int count = 0, can = 0;
  ASSERT_CU(Cu().cuDeviceGetCount(&count));
  if (count < 2) GTEST_SKIP() << "there is only one device";
  ASSERT_CU(Cu().cuDeviceCanAccessPeer(&can, 0, 1));
  const CUdeviceptr here = Allocate(100000);
  const auto pattern = Pattern(100000, 31);
  Write(here, pattern);
  CUcontext other = nullptr;
  ASSERT_CU(Cu().cuCtxCreate_v2(&other, 0, 1));
  const CUdeviceptr there = Allocate(100000);
  ASSERT_CU(Cu().cuMemcpyPeer(there, other, here, context_, 100000));
  EXPECT_EQ(Read(there, 100000), pattern);
  ASSERT_CU(Cu().cuMemsetD8_v2(there, 0, 100000));
  ASSERT_CU(Cu().cuMemcpyPeerAsync(there, other, here, context_, 5000, nullptr));
  ASSERT_CU(Cu().cuCtxSynchronize());
  EXPECT_EQ(Read(there, 5000), std::vector<uint8_t>(pattern.begin(), pattern.begin() + 5000));
  EXPECT_NE(Cu().cuMemcpyPeer(there, nullptr, here, context_, 100), CUDA_SUCCESS);
  if (can != 0) {
    EXPECT_CU(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, Cu().cuCtxDisablePeerAccess(context_));
    ASSERT_CU(Cu().cuCtxEnablePeerAccess(context_, 0));
    EXPECT_CU(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, Cu().cuCtxEnablePeerAccess(context_, 0));
    ASSERT_CU(Cu().cuCtxDisablePeerAccess(context_));
    EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuCtxEnablePeerAccess(context_, 1));
    int supported = 0;
    ASSERT_CU(
        Cu().cuDeviceGetP2PAttribute(&supported, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
    EXPECT_EQ(supported, 1);
  }
  EXPECT_NE(Cu().cuCtxEnablePeerAccess(other, 0), CUDA_SUCCESS);  // the current one itself
  ASSERT_CU(Cu().cuCtxDestroy_v2(other));
}

// Work of either context comes before a copy between them, or after it.
TEST_F(PeerTest, ACopyIsInTheOrderOfBothContexts) {
  int count = 0;
  ASSERT_CU(Cu().cuDeviceGetCount(&count));
  if (count < 2) GTEST_SKIP() << "there is only one device";
  constexpr size_t kBytes = size_t{4} << 20;
  const CUdeviceptr here = Allocate(kBytes);
  CUcontext other = nullptr;
  ASSERT_CU(Cu().cuCtxCreate_v2(&other, 0, 1));
  const CUdeviceptr there = Allocate(kBytes);
  for (uint8_t round = 1; round <= 20; ++round) {
    ASSERT_CU(Cu().cuMemsetD8_v2(there, round, kBytes));
    {
      const InContext back(context_);
      ASSERT_CU(Cu().cuMemsetD8_v2(here, 0xff, kBytes));
    }
    ASSERT_CU(Cu().cuMemcpyPeer(here, context_, there, other, kBytes));
    ASSERT_CU(Cu().cuMemsetD8_v2(there, 0, kBytes));
    const InContext back(context_);
    EXPECT_EQ(Read(here, kBytes), std::vector<uint8_t>(kBytes, round));
  }
  ASSERT_CU(Cu().cuCtxDestroy_v2(other));
}

TEST_F(PeerTest, CopiesBoxesBetweenDevices) {
  int count = 0;
  ASSERT_CU(Cu().cuDeviceGetCount(&count));
  if (count < 2) GTEST_SKIP() << "there is only one device";
  constexpr size_t kWidth = 64, kHeight = 5, kDepth = 3;
  const auto pattern = Pattern(kWidth * kHeight * kDepth, 32);
  const CUdeviceptr here = Allocate(pattern.size());
  Write(here, pattern);
  CUcontext other = nullptr;
  ASSERT_CU(Cu().cuCtxCreate_v2(&other, 0, 1));
  const CUdeviceptr there = Allocate(pattern.size());
  ASSERT_CU(Cu().cuMemsetD8_v2(there, 0, pattern.size()));
  CUDA_MEMCPY3D_PEER copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = here;
  copy.srcContext = context_;
  copy.dstDevice = there;
  copy.dstContext = other;
  copy.srcPitch = copy.dstPitch = kWidth;
  copy.srcHeight = copy.dstHeight = kHeight;
  copy.WidthInBytes = kWidth;
  copy.Height = kHeight;
  copy.Depth = kDepth;
  ASSERT_CU(Cu().cuMemcpy3DPeer(&copy));
  ASSERT_CU(Cu().cuCtxSynchronize());
  EXPECT_EQ(Read(there, pattern.size()), pattern);
  ASSERT_CU(Cu().cuMemsetD8_v2(there, 0, pattern.size()));
  ASSERT_CU(Cu().cuMemcpy3DPeerAsync(&copy, nullptr));
  ASSERT_CU(Cu().cuCtxSynchronize());
  EXPECT_EQ(Read(there, pattern.size()), pattern);
  copy.srcContext = nullptr;
  EXPECT_NE(Cu().cuMemcpy3DPeer(&copy), CUDA_SUCCESS);
  EXPECT_NE(Cu().cuMemcpy3DPeer(nullptr), CUDA_SUCCESS);
  ASSERT_CU(Cu().cuCtxDestroy_v2(other));
}

// A primary context keeps its handle when it ends.
TEST_F(PeerTest, AnEndedPrimaryContextIsNoSideOfACopy) {
  if (!OnSoftwareGpu()) GTEST_SKIP() << "a card may follow the context that has ended";
  const CUdeviceptr block = Allocate(64);
  CUcontext primary = nullptr;
  ASSERT_CU(Cu().cuDevicePrimaryCtxRetain(&primary, 0));
  ASSERT_CU(Cu().cuDevicePrimaryCtxRelease_v2(0));
  CUDA_MEMCPY3D_PEER copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = block;
  copy.srcContext = primary;
  copy.dstDevice = block + 32;
  copy.dstContext = context_;
  copy.WidthInBytes = 32;
  copy.Height = copy.Depth = 1;
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, Cu().cuMemcpy3DPeer(&copy));
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT,
            Cu().cuMemcpyPeer(block + 32, context_, block, primary, 32));
}

TEST_F(PeerTest, AccessIsToOneContextAndNotToTheNext) {
  int count = 0, can = 0;
  ASSERT_CU(Cu().cuDeviceGetCount(&count));
  if (count < 2) GTEST_SKIP() << "there is only one device";
  ASSERT_CU(Cu().cuDeviceCanAccessPeer(&can, 0, 1));
  if (can == 0) GTEST_SKIP() << "the devices cannot reach each other";
  CUcontext primary = nullptr;
  for (int i = 0; i < 2; ++i) {
    ASSERT_CU(Cu().cuDevicePrimaryCtxRetain(&primary, 1));
    EXPECT_CU(CUDA_SUCCESS, Cu().cuCtxEnablePeerAccess(primary, 0));
    EXPECT_CU(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, Cu().cuCtxEnablePeerAccess(primary, 0));
    ASSERT_CU(Cu().cuDevicePrimaryCtxRelease_v2(1));
  }
}

// Leave is given and taken under running kernels, which need none of it.
TEST_F(PeerTest, KernelsRunOnWhileLeaveIsGiven) {
  int count = 0, can = 0;
  ASSERT_CU(Cu().cuDeviceGetCount(&count));
  if (count < 2) GTEST_SKIP() << "there is only one device";
  ASSERT_CU(Cu().cuDeviceCanAccessPeer(&can, 0, 1));
  if (can == 0) GTEST_SKIP() << "the devices cannot reach each other";
  CUcontext other = nullptr;
  CUdeviceptr words = Allocate(4096), mapped = 0;
  ASSERT_CU(Cu().cuMemsetD32_v2(words, 0, 1024));
  const CUfunction add = Kernel("add");
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_CU(Cu().cuMemCreate(&handle, kPage, &properties, 0));
  ASSERT_CU(Cu().cuMemAddressReserve(&mapped, kPage, 0, 0, 0));
  ASSERT_CU(Cu().cuMemMap(mapped, kPage, 0, handle, 0));
  ASSERT_CU(Cu().cuCtxCreate_v2(&other, 0, 1));
  Allocate(4096);
  ASSERT_CU(Cu().cuCtxPopCurrent_v2(&other));

  std::atomic<bool> stop = false;
  std::atomic<uint32_t> launches = 0;
  std::thread kernels([&] {
    const InContext current(context_);
    uint32_t one = 1, all = 1024;
    while (!stop) {
      EXPECT_CU(CUDA_SUCCESS, Launch(add, 4, 256, nullptr, {&words, &one, &all}));
      EXPECT_CU(CUDA_SUCCESS, Cu().cuCtxSynchronize());
      ++launches;
    }
  });
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  for (uint32_t round = 0; round < 50 || launches < 3; ++round) {
    EXPECT_CU(CUDA_SUCCESS, Cu().cuCtxEnablePeerAccess(other, 0));
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemSetAccess(mapped, kPage, &access, 1));
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemSetAccess(mapped, kPage, &access, 1));
    EXPECT_CU(CUDA_SUCCESS, Cu().cuCtxDisablePeerAccess(other));
    if (HasFailure()) break;
  }
  stop = true;
  kernels.join();
  std::vector<uint32_t> seen(1024);
  ASSERT_CU(Cu().cuMemcpyDtoH_v2(seen.data(), words, 4096));
  EXPECT_EQ(seen, std::vector<uint32_t>(1024, launches));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemUnmap(mapped, kPage));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemRelease(handle));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemAddressFree(mapped, kPage));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuCtxDestroy_v2(other));
}

TEST_F(PeerTest, ADeviceIsNotItsOwnPeer) {
  int value = -1;
  ASSERT_CU(Cu().cuDeviceCanAccessPeer(&value, 0, 0));
  EXPECT_EQ(value, 0);
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE,
            Cu().cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, Cu().cuDeviceCanAccessPeer(&value, 0, 999));
}

TEST_F(SettingsTest, ContextsAndStreamsHaveNumbers) {
  if (Cu().cuCtxGetId == nullptr) GTEST_SKIP() << "a driver from before 12.0";
  unsigned long long current = 0, named = 1, first = 0, second = 0;
  ASSERT_CU(Cu().cuCtxGetId(nullptr, &current));
  ASSERT_CU(Cu().cuCtxGetId(context_, &named));
  EXPECT_EQ(current, named);
  CUstream stream = nullptr;
  ASSERT_CU(Cu().cuStreamCreate(&stream, 0));
  ASSERT_CU(Cu().cuStreamGetId(stream, &first));
  ASSERT_CU(Cu().cuStreamGetId(nullptr, &second));
  EXPECT_NE(first, second);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuStreamGetId(stream, nullptr));
  ASSERT_CU(Cu().cuStreamDestroy_v2(stream));
}

TEST_F(SettingsTest, PropertiesAgreeWithAttributes) {
  CUdevprop properties = {};
  ASSERT_CU(Cu().cuDeviceGetProperties(&properties, 0));
  int threads = 0, warp = 0;
  ASSERT_CU(Cu().cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0));
  ASSERT_CU(Cu().cuDeviceGetAttribute(&warp, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
  EXPECT_EQ(properties.maxThreadsPerBlock, threads);
  EXPECT_EQ(properties.SIMDWidth, warp);
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, Cu().cuDeviceGetProperties(&properties, 999));
  int config = -1;
  ASSERT_CU(Cu().cuCtxSetSharedMemConfig(1));
  ASSERT_CU(Cu().cuCtxGetSharedMemConfig(&config));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuCtxSetSharedMemConfig(99));
}

TEST_F(SettingsTest, EveryErrorHasANameAndAText) {
#define TANDEM_CASE(name, value, text)                           \
  if (value != 721 && value != 226) {                            \
    const char *found = nullptr, *said = nullptr;                \
    EXPECT_CU(CUDA_SUCCESS, Cu().cuGetErrorName(name, &found));  \
    EXPECT_STREQ(found, #name);                                  \
    EXPECT_CU(CUDA_SUCCESS, Cu().cuGetErrorString(name, &said)); \
    EXPECT_GT(std::strlen(said), 0u);                            \
  }
  TANDEM_CURESULTS(TANDEM_CASE)
#undef TANDEM_CASE
}

}  // namespace
}  // namespace tandem::driver_test
