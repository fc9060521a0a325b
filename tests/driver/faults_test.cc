// Faults that the software GPU makes on demand. Each test needs its variable set as CMakeLists.txt
// sets it, and skips elsewhere.
#include <cstdlib>

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
  ASSERT_CU(Launch(Kernel("spin"), 1, 1, nullptr, {&out, &rounds}));
  EXPECT_CU(CUDA_ERROR_LAUNCH_TIMEOUT, Cu().cuCtxSynchronize());
  EXPECT_CU(CUDA_ERROR_LAUNCH_TIMEOUT, Cu().cuMemAlloc_v2(&out, 4));
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
