// What is refused, and how: handles of what is gone. Only the software GPU looks at a handle before
// it follows it; a card's driver may do anything.
#include "tests/driver/errors.h"

namespace tandem::driver_test {
namespace {

class ErrorsStaleTest : public ErrorsTest {
 protected:
  void SetUp() override {
    ErrorsTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (!OnSoftwareGpu()) {
      may_skip_ = true;
      GTEST_SKIP() << "a card's driver follows a handle without looking at it first";
    }
    ASSERT_CU(Cu().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    ASSERT_CU(Cu().cuStreamCreate(&good_, CU_STREAM_NON_BLOCKING));
    ASSERT_CU(Cu().cuEventCreate(&event_, CU_EVENT_DEFAULT));
    block_ = Allocate(64);
    ASSERT_CU(Cu().cuStreamDestroy_v2(stream_));
    ASSERT_CU(Cu().cuEventDestroy_v2(event_));
  }
  CUstream stream_ = nullptr, good_ = nullptr;  // one that is gone, one that is not
  CUevent event_ = nullptr;                     // gone
  CUdeviceptr block_ = 0;
};

TEST_F(ErrorsStaleTest, Streams) {
  CUcontext context = nullptr;
  CUlaunchAttributeValue value = {};
  unsigned int flags = 0;
  int priority = 0;
  unsigned long long id = 0;
  const CUstreamCallback callback = [](CUstream, CUresult, void*) {};
  const CUhostFn function = [](void*) {};
  constexpr auto kPolicy = CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY;
  REFUSES(kHandle, cuStreamQuery, stream_);
  REFUSES(kHandle, cuStreamSynchronize, stream_);
  REFUSES(kHandle, cuStreamDestroy_v2, stream_);
  REFUSES(kHandle, cuStreamGetFlags, stream_, &flags);
  REFUSES(kHandle, cuStreamGetPriority, stream_, &priority);
  REFUSES(kHandle, cuStreamGetCtx, stream_, &context);
  REFUSES(kHandle, cuStreamGetId, stream_, &id);
  REFUSES(kHandle, cuStreamGetAttribute, stream_, kPolicy, &value);
  REFUSES(kHandle, cuStreamSetAttribute, stream_, kPolicy, &value);
  REFUSES(kHandle, cuStreamCopyAttributes, stream_, good_);
  REFUSES(kHandle, cuStreamCopyAttributes, good_, stream_);
  REFUSES(kHandle, cuStreamAddCallback, stream_, callback, nullptr, 0);
  REFUSES(kHandle, cuLaunchHostFunc, stream_, function, nullptr);
  REFUSES(kHandle, cuStreamAttachMemAsync, stream_, block_, 0, CU_MEM_ATTACH_SINGLE);
}

TEST_F(ErrorsStaleTest, StreamsToCopyIn) {
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
  REFUSES(kHandle, cuMemcpyAsync, block_, block_ + 32, 16, stream_);
  REFUSES(kHandle, cuMemcpyPeerAsync, block_, context_, block_ + 32, context_, 16, stream_);
  REFUSES(kHandle, cuMemcpyHtoDAsync_v2, block_, host, 16, stream_);
  REFUSES(kHandle, cuMemcpyDtoHAsync_v2, host, block_, 16, stream_);
  REFUSES(kHandle, cuMemcpyDtoDAsync_v2, block_, block_ + 32, 16, stream_);
  REFUSES(kHandle, cuMemcpy2DAsync_v2, &rectangle, stream_);
  REFUSES(kHandle, cuMemcpy3DAsync_v2, &box, stream_);
}

TEST_F(ErrorsStaleTest, Events) {
  REFUSES(kHandle, cuEventQuery, event_);
  REFUSES(kHandle, cuEventSynchronize, event_);
  REFUSES(kHandle, cuEventRecord, event_, good_);
  REFUSES(kHandle, cuStreamWaitEvent, good_, event_, 0);
  REFUSES(kHandle, cuEventDestroy_v2, event_);
}

TEST_F(ErrorsStaleTest, EventsOfGraphs) {
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr, record = nullptr, wait = nullptr;
  CUevent event = nullptr;
  TAKES(cuGraphCreate, &graph, 0);
  TAKES(cuEventCreate, &event, CU_EVENT_DEFAULT);
  TAKES(cuGraphAddEventRecordNode, &record, graph, nullptr, 0, event);
  TAKES(cuGraphAddEventWaitNode, &wait, graph, nullptr, 0, event);
  REFUSES(kHandle, cuGraphAddEventRecordNode, &node, graph, nullptr, 0, event_);
  REFUSES(kHandle, cuGraphAddEventWaitNode, &node, graph, nullptr, 0, event_);
  REFUSES(kHandle, cuGraphEventRecordNodeSetEvent, record, event_);
  REFUSES(kHandle, cuGraphEventWaitNodeSetEvent, wait, event_);
  TAKES(cuGraphDestroy, graph);
}

TEST_F(ErrorsStaleTest, Contexts) {
  CUcontext context = nullptr, popped = nullptr;
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  unsigned int version = 0;
  unsigned long long id = 0;
  TAKES(cuCtxCreate_v2, &context, 0, 0);
  TAKES(cuCtxPopCurrent_v2, &popped);
  TAKES(cuCtxDestroy_v2, context);
  TAKES(cuGraphCreate, &graph, 0);
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_MEMSET;
  params.memset = {block_, 0, 7, 4, 4, 1, context};
  const Answers destroyed = {CUDA_ERROR_CONTEXT_IS_DESTROYED};
  REFUSES(kContext, cuCtxPushCurrent_v2, context);
  REFUSES(kContext, cuCtxSetCurrent, context);
  REFUSES(kContext, cuCtxDestroy_v2, context);
  REFUSES(kContext, cuCtxGetApiVersion, context, &version);
  REFUSES(destroyed, cuCtxGetId, context, &id);
  REFUSES(kContext, cuGraphAddNode, &node, graph, nullptr, 0, &params);
  TAKES(cuGraphDestroy, graph);
}

// In a thread in which it is still current.
TEST_F(ErrorsStaleTest, WhatIsOfTheCurrentContext) {
  CUcontext context = nullptr, popped = nullptr;
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUarray array = nullptr;
  const CUDA_ARRAY3D_DESCRIPTOR plane = {16, 16, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  TAKES(cuLibraryLoadData, &library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0);
  TAKES(cuLibraryGetKernel, &kernel, library, "store");
  TAKES(cuCtxCreate_v2, &context, 0, 0);
  TAKES(cuArray3DCreate_v2, &array, &plane);
  TAKES(cuCtxPopCurrent_v2, &popped);
  std::thread([&] {
    const Answers destroyed = {CUDA_ERROR_CONTEXT_IS_DESTROYED};
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    CUdeviceptr pointer = 0;
    size_t bytes = 0;
    CUDA_ARRAY3D_DESCRIPTOR described = {};
    TAKES(cuCtxSetCurrent, context);
    std::thread([&] { TAKES(cuCtxDestroy_v2, context); }).join();
    REFUSES(destroyed, cuLibraryGetModule, &module, library);
    REFUSES(destroyed, cuLibraryGetGlobal, &pointer, &bytes, library, "counter");
    REFUSES(destroyed, cuKernelGetFunction, &function, kernel);
    REFUSES(destroyed, cuArray3DGetDescriptor_v2, &described, array);
    REFUSES(destroyed, cuArrayDestroy, array);
  }).join();
  TAKES(cuLibraryUnload, library);
}

}  // namespace
}  // namespace tandem::driver_test
