// After a kernel's fault every call that works on the device gives that fault's error, until the
// context is destroyed.
#include "tests/driver/errors.h"

namespace tandem::driver_test {
namespace {

class ErrorsStickyTest : public ErrorsTest {
 protected:
  void SetUp() override {
    ErrorsTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_CU(Cu().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    ASSERT_CU(Cu().cuEventCreate(&event_, CU_EVENT_DEFAULT));
    ASSERT_CU(Cu().cuEventRecord(event_, stream_));
    ASSERT_CU(Cu().cuGraphCreate(&graph_, 0));
    block_ = Allocate(64);
    store_ = Kernel("store");
    const CUDA_MEMSET_NODE_PARAMS fill = {block_, 0, 7, 4, 4, 1};
    CUgraphNode node = nullptr;
    ASSERT_CU(Cu().cuGraphAddMemsetNode(&node, graph_, nullptr, 0, &fill, context_));
    ASSERT_CU(Cu().cuGraphInstantiateWithFlags(&exec_, graph_, 0));
  }
  void TearDown() override {
    if (graph_ != nullptr) Cu().cuGraphDestroy(graph_);  // whatever a broken context says
    ErrorsTest::TearDown();
  }
  void Break() {
    ASSERT_CU(Launch(Kernel("trap"), 1, 1, nullptr, {}));
    error_ = Cu().cuCtxSynchronize();
    ASSERT_NE(error_, CUDA_SUCCESS);
  }

  CUresult error_ = CUDA_SUCCESS;
  CUstream stream_ = nullptr;
  CUevent event_ = nullptr;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
  CUdeviceptr block_ = 0;
  CUfunction store_ = nullptr;
};

TEST_F(ErrorsStickyTest, WorkIsRefused) {
  char host[16] = {};
  uint32_t value = 1;
  void* parameters[] = {&block_, &value};
  const CUhostFn function = [](void*) {};
  Break();
  const Answers sticks = {error_};
  REFUSES(sticks, cuLaunchKernel, store_, 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr);
  REFUSES(sticks, cuGraphLaunch, exec_, stream_);
  REFUSES(sticks, cuLaunchHostFunc, stream_, function, nullptr);
  REFUSES(sticks, cuMemcpyHtoD_v2, block_, host, 16);
  REFUSES(sticks, cuMemcpyHtoDAsync_v2, block_, host, 16, stream_);
  REFUSES(sticks, cuMemcpyDtoH_v2, host, block_, 16);
  REFUSES(sticks, cuMemcpyDtoHAsync_v2, host, block_, 16, stream_);
  REFUSES(sticks, cuMemcpyDtoDAsync_v2, block_, block_ + 32, 16, stream_);
  REFUSES(sticks, cuMemsetD8_v2, block_, 1, 16);
  REFUSES(sticks, cuMemsetD32Async, block_, 1, 4, stream_);
  REFUSES(sticks, cuEventRecord, event_, stream_);
  REFUSES(sticks, cuStreamWaitEvent, stream_, event_, 0);
}

TEST_F(ErrorsStickyTest, WaitingTellsOfIt) {
  Break();
  const Answers sticks = {error_};
  REFUSES(sticks, cuCtxSynchronize);
  REFUSES(sticks, cuStreamSynchronize, stream_);
  REFUSES(sticks, cuStreamSynchronize, nullptr);
  REFUSES(sticks, cuStreamQuery, stream_);
  REFUSES(sticks, cuEventSynchronize, event_);
  REFUSES(sticks, cuEventQuery, event_);
  REFUSES(sticks, cuCtxSynchronize);  // being told does not clear it
}

TEST_F(ErrorsStickyTest, NothingIsAllocated) {
  CUdeviceptr pointer = 0;
  void* host = nullptr;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUmodule module = nullptr;
  Break();
  const Answers sticks = {error_};
  REFUSES(sticks, cuMemAlloc_v2, &pointer, 4096);
  REFUSES(sticks, cuMemAllocAsync, &pointer, 4096, stream_);
  REFUSES(sticks, cuMemFree_v2, block_);
  REFUSES(sticks, cuMemHostAlloc, &host, 4096, 0);
  REFUSES(sticks, cuStreamCreate, &stream, 0);
  REFUSES(sticks, cuEventCreate, &event, 0);
  REFUSES(sticks, cuModuleLoadData, &module, kKernels);
}

TEST_F(ErrorsStickyTest, WhatNeedsNoDeviceGoesOn) {
  CUcontext current = nullptr;
  CUdevice device = -1;
  int count = 0, warp = 0;
  const char* text = nullptr;
  Break();
  TAKES(cuCtxGetCurrent, &current);
  EXPECT_EQ(current, context_);
  TAKES(cuCtxGetDevice, &device);
  TAKES(cuDeviceGetCount, &count);
  TAKES(cuDeviceGetAttribute, &warp, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0);
  TAKES(cuGetErrorName, error_, &text);
  TAKES(cuCtxDestroy_v2, context_);
  context_ = nullptr;
}

}  // namespace
}  // namespace tandem::driver_test
