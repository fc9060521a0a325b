// After a kernel's fault every call that works on the device gives that fault's error, until the
// context is destroyed. Every case is one of each kind of fault.
#include "tests/driver/errors.h"

namespace tandem::driver_test {
namespace {

enum class Fault { kTrap, kIllegalAddress };

class ErrorsStickyTest : public ErrorsTest, public testing::WithParamInterface<Fault> {
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
    if (GetParam() == Fault::kTrap) {
      ASSERT_CU(Launch(Kernel("trap"), 1, 1, nullptr, {}));
    } else {
      CUdeviceptr nowhere = 0x10;
      uint32_t value = 1;
      ASSERT_CU(Launch(store_, 1, 1, nullptr, {&nowhere, &value}));
    }
    error_ = Cu().cuCtxSynchronize();
    ASSERT_EQ(error_,
              GetParam() == Fault::kTrap ? CUDA_ERROR_LAUNCH_FAILED : CUDA_ERROR_ILLEGAL_ADDRESS);
  }

  CUresult error_ = CUDA_SUCCESS;
  CUstream stream_ = nullptr;
  CUevent event_ = nullptr;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
  CUdeviceptr block_ = 0;
  CUfunction store_ = nullptr;
};

TEST_P(ErrorsStickyTest, WorkIsRefused) {
  uint32_t value = 1;
  void* parameters[] = {&block_, &value};
  CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream_, nullptr, 0};
  const CUhostFn function = [](void*) {};
  Break();
  const Answers sticks = {error_};
  REFUSES(sticks, cuLaunchKernel, store_, 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr);
  REFUSES(sticks, cuLaunchKernelEx, &config, store_, parameters, nullptr);
  REFUSES(sticks, cuLaunchCooperativeKernel, store_, 1, 1, 1, 1, 1, 1, 0, stream_, parameters);
  REFUSES(sticks, cuGraphLaunch, exec_, stream_);
  REFUSES(sticks, cuLaunchHostFunc, stream_, function, nullptr);
  REFUSES(sticks, cuEventRecord, event_, stream_);
  REFUSES(sticks, cuStreamWaitEvent, stream_, event_, 0);
}

TEST_P(ErrorsStickyTest, CopiesAndFillsAreRefused) {
  char host[16] = {};
  CUDA_MEMCPY2D rectangle = {};
  rectangle.srcMemoryType = rectangle.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rectangle.srcDevice = block_;
  rectangle.dstDevice = block_ + 32;
  rectangle.srcPitch = rectangle.dstPitch = rectangle.WidthInBytes = 16;
  rectangle.Height = 1;
  CUDA_MEMCPY3D box = {};
  box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  box.srcDevice = block_;
  box.dstDevice = block_ + 32;
  box.WidthInBytes = 16;
  box.Height = box.Depth = 1;
  Break();
  const Answers sticks = {error_};
  REFUSES(sticks, cuMemcpyHtoD_v2, block_, host, 16);
  REFUSES(sticks, cuMemcpyHtoDAsync_v2, block_, host, 16, stream_);
  REFUSES(sticks, cuMemcpyDtoH_v2, host, block_, 16);
  REFUSES(sticks, cuMemcpyDtoHAsync_v2, host, block_, 16, stream_);
  REFUSES(sticks, cuMemcpyDtoD_v2, block_, block_ + 32, 16);
  REFUSES(sticks, cuMemcpyDtoDAsync_v2, block_, block_ + 32, 16, stream_);
  REFUSES(sticks, cuMemsetD8_v2, block_, 1, 16);
  REFUSES(sticks, cuMemsetD32Async, block_, 1, 4, stream_);
  REFUSES(sticks, cuMemcpy2D_v2, &rectangle);
  REFUSES(sticks, cuMemcpy2DUnaligned_v2, &rectangle);
  REFUSES(sticks, cuMemcpy2DAsync_v2, &rectangle, stream_);
  REFUSES(sticks, cuMemcpy3D_v2, &box);
  REFUSES(sticks, cuMemcpy3DAsync_v2, &box, stream_);
}

TEST_P(ErrorsStickyTest, WaitingTellsOfIt) {
  float milliseconds = 0;
  Break();
  const Answers sticks = {error_};
  REFUSES(sticks, cuCtxSynchronize);
  REFUSES(sticks, cuStreamSynchronize, stream_);
  REFUSES(sticks, cuStreamSynchronize, nullptr);
  REFUSES(sticks, cuStreamQuery, stream_);
  REFUSES(sticks, cuEventSynchronize, event_);
  REFUSES(sticks, cuEventQuery, event_);
  REFUSES(sticks, cuEventElapsedTime, &milliseconds, event_, event_);
  REFUSES(sticks, cuCtxSynchronize);  // being told does not clear it
}

TEST_P(ErrorsStickyTest, NothingIsAllocated) {
  CUdeviceptr pointer = 0;
  void* host = nullptr;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUmodule module = nullptr;
  CUdeviceptr of_pool = 0;
  TAKES(cuMemAllocAsync, &of_pool, 4096, stream_);
  Break();
  const Answers sticks = {error_};
  REFUSES(sticks, cuMemAlloc_v2, &pointer, 4096);
  REFUSES(sticks, cuMemAllocAsync, &pointer, 4096, stream_);
  REFUSES(sticks, cuMemFreeAsync, of_pool, stream_);
  REFUSES(sticks, cuMemFree_v2, block_);
  REFUSES(sticks, cuMemHostAlloc, &host, 4096, 0);
  REFUSES(sticks, cuStreamCreate, &stream, 0);
  REFUSES(sticks, cuEventCreate, &event, 0);
  REFUSES(sticks, cuModuleLoadData, &module, kKernels);
}

// Memory of no context may be created. A release succeeds or returns the sticky error.
TEST_P(ErrorsStickyTest, WhatIsOfNoContextAndWhatGoes) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle handle = 0;
  Break();
  const Answers either = {CUDA_SUCCESS, error_};
  REFUSES(either, cuMemCreate, &handle, kPage, &properties, 0);
  if (handle != 0) REFUSES(either, cuMemRelease, handle);
  REFUSES(either, cuStreamDestroy, stream_);
  REFUSES(either, cuEventDestroy_v2, event_);
}

TEST_P(ErrorsStickyTest, WhatNeedsNoDeviceGoesOn) {
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

INSTANTIATE_TEST_SUITE_P(EachFault, ErrorsStickyTest,
                         testing::Values(Fault::kTrap, Fault::kIllegalAddress),
                         [](const testing::TestParamInfo<Fault>& info) {
                           return info.param == Fault::kTrap ? "Trap" : "IllegalAddress";
                         });

}  // namespace
}  // namespace tandem::driver_test
