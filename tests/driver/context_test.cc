// Contexts: the stack of a thread, primary contexts, ends.
#include <thread>

#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

using ContextTest = DriverTest;

TEST_F(ContextTest, CreatingMakesItCurrent) {
  CUcontext current = nullptr;
  ASSERT_CU(Cu().cuCtxGetCurrent(&current));
  EXPECT_EQ(current, context_);
  CUdevice device = -1;
  ASSERT_CU(Cu().cuCtxGetDevice(&device));
  EXPECT_EQ(device, 0);
}

TEST_F(ContextTest, PushAndPop) {
  CUcontext popped = nullptr, current = nullptr;
  ASSERT_CU(Cu().cuCtxPushCurrent_v2(context_));
  ASSERT_CU(Cu().cuCtxPopCurrent_v2(&popped));
  EXPECT_EQ(popped, context_);
  ASSERT_CU(Cu().cuCtxPopCurrent_v2(&popped));
  EXPECT_EQ(popped, context_);
  ASSERT_CU(Cu().cuCtxGetCurrent(&current));
  EXPECT_EQ(current, nullptr);
  size_t free = 0, total = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, Cu().cuMemGetInfo_v2(&free, &total));
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, Cu().cuCtxSynchronize());
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, Cu().cuCtxPopCurrent_v2(&popped));
  ASSERT_CU(Cu().cuCtxSetCurrent(context_));
}

TEST_F(ContextTest, LivesUntilItIsDetachedAsOftenAsItWasAttached) {
  if (Cu().cuCtxAttach == nullptr) GTEST_SKIP() << "a driver without cuCtxAttach";
  CUcontext own = nullptr, attached = nullptr, current = nullptr;
  ASSERT_CU(Cu().cuCtxCreate_v2(&own, 0, 0));
  ASSERT_CU(Cu().cuCtxAttach(&attached, 0));
  EXPECT_EQ(attached, own);
  EXPECT_NE(Cu().cuCtxAttach(&attached, 1), CUDA_SUCCESS);
  EXPECT_NE(Cu().cuCtxDetach(context_), CUDA_SUCCESS);  // not the current one
  ASSERT_CU(Cu().cuCtxDetach(own));
  const CUdeviceptr pointer = Allocate(4096);
  EXPECT_NE(pointer, 0u);
  ASSERT_CU(Cu().cuCtxDetach(own));
  ASSERT_CU(Cu().cuCtxGetCurrent(&current));
  EXPECT_NE(current, own);
  if (OnSoftwareGpu()) {  // it has ended
    EXPECT_NE(Cu().cuCtxSetCurrent(own), CUDA_SUCCESS);
  }
  ASSERT_CU(Cu().cuCtxSetCurrent(context_));
}

TEST_F(ContextTest, BelongsToAThread) {
  std::thread other([&] {
    CUdeviceptr pointer = 0;
    EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, Cu().cuMemAlloc_v2(&pointer, 4096));
    EXPECT_CU(CUDA_SUCCESS, Cu().cuCtxSetCurrent(context_));
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemAlloc_v2(&pointer, 4096));
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemFree_v2(pointer));
  });
  other.join();
}

TEST_F(ContextTest, DestroyingFreesItsMemory) {
  if (!HasTheDeviceAlone()) GTEST_SKIP() << kNotAlone;
  size_t before = 0, during = 0, after = 0, total = 0;
  ASSERT_CU(Cu().cuMemGetInfo_v2(&before, &total));
  CUcontext second = nullptr;
  ASSERT_CU(Cu().cuCtxCreate_v2(&second, 0, 0));
  Allocate(4 << 20);
  ASSERT_CU(Cu().cuMemGetInfo_v2(&during, &total));
  EXPECT_LE(during + (4 << 20), before);
  ASSERT_CU(Cu().cuCtxDestroy_v2(second));
  CUcontext current = nullptr;
  ASSERT_CU(Cu().cuCtxGetCurrent(&current));
  EXPECT_EQ(current, context_);
  ASSERT_CU(Cu().cuMemGetInfo_v2(&after, &total));
  EXPECT_TRUE(IsAbout(after, before)) << after << " after, " << before << " before";
}

TEST_F(ContextTest, PrimaryIsCounted) {
  unsigned int flags = 0;
  int active = -1;
  ASSERT_CU(Cu().cuDevicePrimaryCtxGetState(0, &flags, &active));
  if (active != 0) GTEST_SKIP() << "somebody else in this process has the primary context";
  CUcontext first = nullptr, second = nullptr;
  ASSERT_CU(Cu().cuDevicePrimaryCtxRetain(&first, 0));
  ASSERT_CU(Cu().cuDevicePrimaryCtxRetain(&second, 0));
  EXPECT_EQ(first, second);
  ASSERT_CU(Cu().cuDevicePrimaryCtxRelease_v2(0));
  ASSERT_CU(Cu().cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(active, 1);
  ASSERT_CU(Cu().cuDevicePrimaryCtxRelease_v2(0));
  ASSERT_CU(Cu().cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(active, 0);
  EXPECT_CU(CUDA_ERROR_INVALID_CONTEXT, Cu().cuDevicePrimaryCtxRelease_v2(0));
}

// Programs keep the handle, and let others reset the device under them.
TEST_F(ContextTest, PrimaryKeepsItsHandle) {
  unsigned int flags = 0;
  int active = -1;
  ASSERT_CU(Cu().cuDevicePrimaryCtxGetState(0, &flags, &active));
  if (active != 0) GTEST_SKIP() << "somebody else in this process has the primary context";
  CUcontext first = nullptr, second = nullptr;
  CUdeviceptr pointer = 0;
  size_t free = 0, total = 0;
  ASSERT_CU(Cu().cuDevicePrimaryCtxRetain(&first, 0));
  ASSERT_CU(Cu().cuCtxPushCurrent_v2(first));
  ASSERT_CU(Cu().cuMemAlloc_v2(&pointer, 4096));
  ASSERT_CU(Cu().cuDevicePrimaryCtxReset_v2(0));
  EXPECT_CU(CUDA_ERROR_CONTEXT_IS_DESTROYED, Cu().cuMemGetInfo_v2(&free, &total));
  ASSERT_CU(Cu().cuDevicePrimaryCtxRetain(&second, 0));
  EXPECT_EQ(first, second);
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemGetInfo_v2(&free, &total));  // current all the time
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuMemFree_v2(pointer));
  ASSERT_CU(Cu().cuDevicePrimaryCtxRelease_v2(0));
  ASSERT_CU(Cu().cuDevicePrimaryCtxRelease_v2(0));
  ASSERT_CU(Cu().cuCtxPopCurrent_v2(&second));
  EXPECT_EQ(first, second);
  // It may be made current before it is made, and then is of no use.
  ASSERT_CU(Cu().cuCtxPushCurrent_v2(first));
  EXPECT_CU(CUDA_ERROR_CONTEXT_IS_DESTROYED, Cu().cuMemAlloc_v2(&pointer, 4096));
  ASSERT_CU(Cu().cuCtxPopCurrent_v2(&second));
}

TEST_F(ContextTest, GivingBackNeedsNoContext) {
  const CUdeviceptr device = Allocate(4096);
  void* host = nullptr;
  std::vector<uint8_t> registered(8192);
  CUstream stream = nullptr;
  CUevent event = nullptr;
  ASSERT_CU(Cu().cuMemAllocHost_v2(&host, 4096));
  ASSERT_CU(Cu().cuMemHostRegister_v2(registered.data(), registered.size(), 0));
  ASSERT_CU(Cu().cuStreamCreate(&stream, 0));
  ASSERT_CU(Cu().cuEventCreate(&event, 0));
  Kernel("store");
  CUcontext popped = nullptr;
  ASSERT_CU(Cu().cuCtxPopCurrent_v2(&popped));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemFree_v2(device));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemFreeHost(host));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemHostUnregister(registered.data()));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamDestroy_v2(stream));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuEventDestroy_v2(event));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuModuleUnload(module_));
  ASSERT_CU(Cu().cuCtxSetCurrent(context_));
}

TEST_F(ContextTest, RefusesNonsense) {
  CUcontext context = nullptr;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuCtxCreate_v2(nullptr, 0, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, Cu().cuCtxCreate_v2(&context, 0, 999));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuCtxCreate_v2(&context, 3, 0));
}

TEST_F(ContextTest, KeepsLimits) {
  size_t stack = 0;
  ASSERT_CU(Cu().cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
  ASSERT_CU(Cu().cuCtxGetLimit(&stack, CU_LIMIT_STACK_SIZE));
  EXPECT_GE(stack, 2048u);
}

}  // namespace
}  // namespace tandem::driver_test
