// Faults that the software GPU makes on demand. Each test needs its variable set as CMakeLists.txt
// sets it, and skips elsewhere.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

class FaultsTest : public DriverTest {
 protected:
  FaultsTest() { may_skip_ = true; }  // there is a run for each fault
  static bool Set(const std::string& variable, const std::string& value) {
    const char* text = std::getenv(variable.c_str());
    return text != nullptr && text == value;
  }
  // The first launch works, the second takes its context with it, and other contexts go on.
  void ExpectTheSecondLaunchToFail(CUresult expected) {
    CUdeviceptr out = Allocate(4), more = 0;
    uint32_t value = 1;
    CUfunction store = Kernel("store");
    ASSERT_CU(Launch(store, 1, 1, nullptr, {&out, &value}));
    ASSERT_CU(Cu().cuCtxSynchronize());
    ASSERT_CU(Launch(store, 1, 1, nullptr, {&out, &value}));
    EXPECT_CU(expected, Cu().cuCtxSynchronize());
    EXPECT_CU(expected, Cu().cuMemAlloc_v2(&more, 4));
    EXPECT_CU(expected, Launch(store, 1, 1, nullptr, {&out, &value}));
    const CUresult destroyed = Cu().cuCtxDestroy_v2(context_);
    EXPECT_TRUE(destroyed == CUDA_SUCCESS || destroyed == expected) << Named(destroyed);
    ASSERT_CU(Cu().cuCtxCreate_v2(&context_, 0, 0));
    module_ = nullptr;
    out = Allocate(4);
    ASSERT_CU(Launch(Kernel("store"), 1, 1, nullptr, {&out, &value}));
    EXPECT_CU(CUDA_SUCCESS, Cu().cuCtxSynchronize());
  }
};

#define NEEDS(variable, value)                                              \
  if (!Set(variable, value)) {                                              \
    GTEST_SKIP() << "only with " variable "=" value " on the software GPU"; \
  }

TEST_F(FaultsTest, TheNthAllocationFails) {
  NEEDS("TANDEM_SOFT_FAIL_ALLOC", "2");
  CUdeviceptr pointer = 0;
  Allocate(4096);
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, Cu().cuMemAlloc_v2(&pointer, 4096));
  Allocate(4096);
}

// Calls that fail have done nothing, and the next ones work.
TEST_F(FaultsTest, WhatFailedCanBeDoneAgain) {
  for (const char* what : {"CREATE", "MAP", "COPY", "REGISTER"}) {
    if (!Set(std::string("TANDEM_SOFT_FAIL_") + what, "every:2")) {
      GTEST_SKIP() << "only with TANDEM_SOFT_FAIL_* on the software GPU";
    }
  }
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle first = 0, second = 0;
  ASSERT_CU(Cu().cuMemCreate(&first, kPage, &properties, 0));
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, Cu().cuMemCreate(&second, kPage, &properties, 0));
  EXPECT_EQ(second, 0u);
  ASSERT_CU(Cu().cuMemCreate(&second, kPage, &properties, 0));
  CUdeviceptr space = 0;
  CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  ASSERT_CU(Cu().cuMemAddressReserve(&space, 2 * kPage, 0, 0, 0));
  ASSERT_CU(Cu().cuMemMap(space, kPage, 0, first, 0));
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, Cu().cuMemMap(space + kPage, kPage, 0, second, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemSetAccess(space, 2 * kPage, &access, 1));
  ASSERT_CU(Cu().cuMemMap(space + kPage, kPage, 0, second, 0));
  ASSERT_CU(Cu().cuMemSetAccess(space, 2 * kPage, &access, 1));
  std::vector<uint8_t> bytes(100, 1), seen(100, 3);
  ASSERT_CU(Cu().cuMemcpyHtoD_v2(space, bytes.data(), 100));
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, Cu().cuMemcpyDtoH_v2(seen.data(), space, 100));
  EXPECT_EQ(seen, std::vector<uint8_t>(100, 3));
  ASSERT_CU(Cu().cuMemcpyDtoH_v2(seen.data(), space, 100));
  EXPECT_EQ(seen, bytes);
  std::vector<uint8_t> memory(3 * 4096), more(4096);
  ASSERT_CU(Cu().cuMemHostRegister_v2(memory.data(), memory.size(), 0));
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, Cu().cuMemHostRegister_v2(more.data(), more.size(), 0));
  EXPECT_NE(Cu().cuMemHostUnregister(more.data()), CUDA_SUCCESS);
  ASSERT_CU(Cu().cuMemHostRegister_v2(more.data(), more.size(), 0));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemHostUnregister(memory.data()));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemHostUnregister(more.data()));
}

// A batch is one call, and one that fails has copied nothing.
TEST_F(FaultsTest, ABatchFailsAsOneCopy) {
  NEEDS("TANDEM_SOFT_FAIL_COPY", "2");
  constexpr size_t kCount = 3, kBytes = 64;
  CUstream stream = nullptr;
  ASSERT_CU(Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr here = Allocate(kCount * kBytes), there = Allocate(kCount * kBytes);
  CUdeviceptr from[kCount], to[kCount];
  size_t bytes[kCount], first = 0, failed = 99;
  for (size_t i = 0; i < kCount; ++i) {
    from[i] = here + i * kBytes;
    to[i] = there + i * kBytes;
    bytes[i] = kBytes;
  }
  CUmemcpyAttributes attributes = {};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  ASSERT_CU(Cu().cuMemsetD8_v2(here, 1, kCount * kBytes));
  ASSERT_CU(
      Cu().cuMemcpyBatchAsync(to, from, bytes, kCount, &attributes, &first, 1, &failed, stream));
  ASSERT_CU(Cu().cuStreamSynchronize(stream));
  ASSERT_CU(Cu().cuMemsetD8_v2(here, 2, kCount * kBytes));
  ASSERT_CU(Cu().cuCtxSynchronize());
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, Cu().cuMemcpyBatchAsync(to, from, bytes, kCount, &attributes,
                                                              &first, 1, &failed, stream));
  EXPECT_EQ(failed, SIZE_MAX);  // none of them in particular
  ASSERT_CU(Cu().cuStreamSynchronize(stream));
  EXPECT_EQ(Read(there, kCount * kBytes), std::vector<uint8_t>(kCount * kBytes, 1));
}

// One row needs no pitch, and may be longer than a pitch can be. Nothing is copied here: a valid
// box meets the fault, and an invalid one is refused before.
TEST_F(FaultsTest, ALongRowIsNoFaultOfABox) {
  NEEDS("TANDEM_SOFT_FAIL_COPY", "1");
  CUstream stream = nullptr;
  ASSERT_CU(Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  uint8_t here = 0, there = 0;
  CUDA_MEMCPY3D_BATCH_OP box = {};
  box.src.type = box.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  box.src.op.ptr.ptr = reinterpret_cast<CUdeviceptr>(&here);
  box.dst.op.ptr.ptr = reinterpret_cast<CUdeviceptr>(&there);
  box.extent = {size_t{3} << 30, 2, 1};
  box.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemcpy3DBatchAsync(1, &box, nullptr, 0, stream));
  box.extent.height = 1;
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, Cu().cuMemcpy3DBatchAsync(1, &box, nullptr, 0, stream));
}

// What breaks by one rule counts for the others as well.
TEST_F(FaultsTest, EachRuleCountsForItself) {
  NEEDS("TANDEM_SOFT_FAIL_ALLOC", "2");
  NEEDS("TANDEM_SOFT_FAIL_CREATE", "3");
  NEEDS("TANDEM_SOFT_KILL_LAUNCH", "2");
  NEEDS("TANDEM_SOFT_ECC_LAUNCH", "3");
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  const CUresult created[] = {CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY,
                              CUDA_SUCCESS};
  for (const CUresult expected : created) {
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_CU(expected, Cu().cuMemCreate(&handle, size_t{2} << 20, &properties, 0));
    if (handle != 0) EXPECT_CU(CUDA_SUCCESS, Cu().cuMemRelease(handle));
  }
  const CUresult launched[] = {CUDA_SUCCESS, CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_ECC_UNCORRECTABLE,
                               CUDA_SUCCESS};
  for (const CUresult expected : launched) {
    CUdeviceptr out = Allocate(4);
    uint32_t value = 1;
    ASSERT_CU(Launch(Kernel("store"), 1, 1, nullptr, {&out, &value}));
    EXPECT_CU(expected, Cu().cuCtxSynchronize());
    if (expected == CUDA_SUCCESS) continue;
    Cu().cuCtxDestroy_v2(context_);  // may tell what it met
    ASSERT_CU(Cu().cuCtxCreate_v2(&context_, 0, 0));
    module_ = nullptr;
  }
}

TEST_F(FaultsTest, AFileMakesThemComeAndGo) {
  const char* file = std::getenv("TANDEM_SOFT_FAULTS_FILE");
  if (file == nullptr) GTEST_SKIP() << "only with TANDEM_SOFT_FAULTS_FILE on the software GPU";
  const std::string other = std::string(file) + ".new";
  const auto put = [&](const char* line) {
    std::ofstream(other) << line << "\n";
    ASSERT_EQ(std::rename(other.c_str(), file), 0);
  };
  CUdeviceptr pointer = 0, more = 0;
  put("");
  ASSERT_CU(Cu().cuMemAlloc_v2(&pointer, 4096));
  put("TANDEM_SOFT_FAIL_ALLOC=every:1");
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, Cu().cuMemAlloc_v2(&more, 4096));
  put("TANDEM_SOFT_FAIL_COPY=every:1");
  ASSERT_CU(Cu().cuMemAlloc_v2(&more, 4096));
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, Cu().cuMemcpyDtoD_v2(pointer, more, 4096));
  ASSERT_EQ(std::remove(file), 0);
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemcpyDtoD_v2(pointer, more, 4096));
}

TEST_F(FaultsTest, TheNthLaunchKillsItsContext) {
  NEEDS("TANDEM_SOFT_KILL_LAUNCH", "2");
  ExpectTheSecondLaunchToFail(CUDA_ERROR_LAUNCH_FAILED);
}

TEST_F(FaultsTest, TheNthLaunchMeetsAnUncorrectableError) {
  NEEDS("TANDEM_SOFT_ECC_LAUNCH", "2");
  ExpectTheSecondLaunchToFail(CUDA_ERROR_ECC_UNCORRECTABLE);
}

TEST_F(FaultsTest, TheWatchdogEndsALongKernel) {
  NEEDS("TANDEM_SOFT_WATCHDOG", "50ms");
  int timeout = 0;
  CUdeviceptr out = Allocate(4);
  uint32_t rounds = ~0u;
  EXPECT_CU(CUDA_SUCCESS,
            Cu().cuDeviceGetAttribute(&timeout, CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT, 0));
  EXPECT_EQ(timeout, 1);
  void* parameters[] = {&out, &rounds};
  const CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, 0};
  const CUfunction spin = Kernel("spin");
  ASSERT_CU(Launch(spin, 1, 1, nullptr, {&out, &rounds}));
  EXPECT_CU(CUDA_ERROR_LAUNCH_TIMEOUT, Cu().cuCtxSynchronize());
  EXPECT_CU(CUDA_ERROR_LAUNCH_TIMEOUT, Cu().cuMemAlloc_v2(&out, 4));
  EXPECT_CU(CUDA_ERROR_LAUNCH_TIMEOUT,
            Cu().cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
  EXPECT_CU(CUDA_ERROR_LAUNCH_TIMEOUT, Cu().cuLaunchKernelEx(&config, spin, parameters, nullptr));
  EXPECT_CU(CUDA_ERROR_LAUNCH_TIMEOUT,
            Cu().cuLaunchCooperativeKernel(spin, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters));
  EXPECT_CU(CUDA_ERROR_LAUNCH_TIMEOUT, Cu().cuLaunch(spin));
  EXPECT_CU(CUDA_ERROR_LAUNCH_TIMEOUT, Cu().cuLaunchGrid(spin, 1, 1));
  EXPECT_CU(CUDA_ERROR_LAUNCH_TIMEOUT, Cu().cuLaunchGridAsync(spin, 1, 1, nullptr));
}

TEST_F(FaultsTest, TheBusIsSlowFromTheNthCopyOn) {
  NEEDS("TANDEM_SOFT_SLOW_BUS", "2:1MB/s");
  constexpr size_t kBytes = 200'000;
  void* host = nullptr;
  CUevent events[3];
  float fast = 0, slow = 0;
  const CUdeviceptr device = Allocate(kBytes);
  ASSERT_CU(Cu().cuMemHostAlloc(&host, kBytes, 0));
  for (CUevent& event : events) ASSERT_CU(Cu().cuEventCreate(&event, 0));
  {
    CUstream stream = nullptr;
    ASSERT_CU(Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    Door door;  // everything is queued before the first copy starts
    door.HoldIn(stream);
    ASSERT_CU(Cu().cuEventRecord(events[0], stream));
    ASSERT_CU(Cu().cuMemcpyHtoDAsync_v2(device, host, kBytes, stream));
    ASSERT_CU(Cu().cuEventRecord(events[1], stream));
    ASSERT_CU(Cu().cuMemcpyDtoHAsync_v2(host, device, kBytes, stream));
    ASSERT_CU(Cu().cuEventRecord(events[2], stream));
    door.Open();
    ASSERT_CU(Cu().cuStreamSynchronize(stream));
  }
  ASSERT_CU(Cu().cuEventElapsedTime(&fast, events[0], events[1]));
  ASSERT_CU(Cu().cuEventElapsedTime(&slow, events[1], events[2]));
  EXPECT_NEAR(fast, 0.025, 0.001);  // ms of the model clock, at 8 GB/s
  EXPECT_NEAR(slow, 200, 1);
}

}  // namespace
}  // namespace tandem::driver_test
