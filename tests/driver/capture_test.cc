// Stream capture: calls that become nodes, and the rules that captures have.
#include <atomic>
#include <thread>

#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

class CaptureTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (Cu().cuStreamBeginCapture_v2 == nullptr) GTEST_SKIP() << "this driver has no capture";
    ASSERT_CU(Cu().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    ASSERT_CU(Cu().cuStreamCreate(&other_, CU_STREAM_NON_BLOCKING));
    ASSERT_CU(Cu().cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING));
    ASSERT_CU(Cu().cuEventCreate(&second_, CU_EVENT_DISABLE_TIMING));
    words_ = Allocate(64);
    ASSERT_CU(Cu().cuMemsetD8_v2(words_, 0, 64));
    ASSERT_CU(Cu().cuCtxSynchronize());
    Kernel("add");
  }

  void Begin(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
    ASSERT_CU(Cu().cuStreamBeginCapture_v2(stream_, mode));
  }
  CUgraph End() {
    CUgraph graph = nullptr;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamEndCapture(stream_, &graph));
    return graph;
  }
  // The capture has failed: its end says so, and the stream is as before.
  void ExpectFailed(CUresult expected) {
    CUgraph graph = reinterpret_cast<CUgraph>(16);
    EXPECT_CU(expected, Cu().cuStreamEndCapture(stream_, &graph));
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(Status(stream_), CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamQuery(stream_));
  }
  static CUstreamCaptureStatus Status(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamIsCapturing(stream, &status));
    return status;
  }
  void AddTo(size_t word, uint32_t value, CUstream stream) {
    CUdeviceptr to = words_ + 4 * word;
    uint32_t count = 1;
    ASSERT_CU(Launch(Kernel("add"), 1, 1, stream, {&to, &value, &count}));
  }
  void Run(CUgraph graph) {
    CUgraphExec exec = nullptr;
    ASSERT_CU(Cu().cuGraphInstantiateWithFlags(&exec, graph, 0));
    ASSERT_CU(Cu().cuGraphLaunch(exec, stream_));
    ASSERT_CU(Cu().cuStreamSynchronize(stream_));
    ASSERT_CU(Cu().cuGraphExecDestroy(exec));
  }
  uint32_t Word(size_t word = 0) {
    uint32_t value = 0;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemcpyDtoH_v2(&value, words_ + 4 * word, 4));
    return value;
  }
  static std::vector<CUgraphNodeType> Types(CUgraph graph) {
    size_t count = 0;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuGraphGetNodes(graph, nullptr, &count));
    std::vector<CUgraphNode> nodes(count);
    EXPECT_CU(CUDA_SUCCESS, Cu().cuGraphGetNodes(graph, nodes.data(), &count));
    std::vector<CUgraphNodeType> types(count);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_CU(CUDA_SUCCESS, Cu().cuGraphNodeGetType(nodes[i], &types[i]));
    }
    return types;
  }

  CUstream stream_ = nullptr, other_ = nullptr;
  CUevent event_ = nullptr, second_ = nullptr;
  CUdeviceptr words_ = 0;
};

TEST_F(CaptureTest, CallsBecomeNodesAndDoNothing) {
  uint32_t in = 5, out = 0;
  std::atomic<int> calls = 0;
  Begin();
  EXPECT_EQ(Status(stream_), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  ASSERT_CU(Cu().cuMemsetD32Async(words_, 1, 2, stream_));
  ASSERT_CU(Cu().cuMemcpyHtoDAsync_v2(words_, &in, 4, stream_));
  AddTo(0, 10, stream_);
  ASSERT_CU(Cu().cuMemcpyDtoHAsync_v2(&out, words_, 4, stream_));
  ASSERT_CU(Cu().cuLaunchHostFunc(
      stream_, [](void* data) { *static_cast<std::atomic<int>*>(data) += 1; }, &calls));
  const CUgraph graph = End();
  EXPECT_EQ(Types(graph), (std::vector{CU_GRAPH_NODE_TYPE_MEMSET, CU_GRAPH_NODE_TYPE_MEMCPY,
                                       CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_MEMCPY,
                                       CU_GRAPH_NODE_TYPE_HOST}));
  EXPECT_EQ(Status(stream_), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(out, 0u);
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(Word(), 0u);
  in = 6;
  Run(graph);
  EXPECT_EQ(out, 16u);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(Word(1), 1u);
}

TEST_F(CaptureTest, ForksAndJoinsByEvents) {
  Begin();
  ASSERT_CU(Cu().cuMemsetD32Async(words_, 1, 2, stream_));
  ASSERT_CU(Cu().cuEventRecord(event_, stream_));
  ASSERT_CU(Cu().cuStreamWaitEvent(other_, event_, 0));
  EXPECT_EQ(Status(other_), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  AddTo(0, 10, stream_);
  AddTo(1, 20, other_);
  ASSERT_CU(Cu().cuEventRecord(second_, other_));
  ASSERT_CU(Cu().cuStreamWaitEvent(stream_, second_, 0));
  AddTo(0, 100, stream_);
  const CUgraph graph = End();
  EXPECT_EQ(Status(other_), CU_STREAM_CAPTURE_STATUS_NONE);
  size_t edges = 0;
  ASSERT_CU(Cu().cuGraphGetEdges(graph, nullptr, nullptr, &edges));
  EXPECT_EQ(edges, 4u);
  Run(graph);
  EXPECT_EQ(Word(0), 111u);
  EXPECT_EQ(Word(1), 21u);
}

TEST_F(CaptureTest, AJoinedForkMayBeDestroyed) {
  for (const bool joined : {true, false}) {
    CUstream fork = nullptr;
    ASSERT_CU(Cu().cuStreamCreate(&fork, CU_STREAM_NON_BLOCKING));
    Begin();
    ASSERT_CU(Cu().cuEventRecord(event_, stream_));
    ASSERT_CU(Cu().cuStreamWaitEvent(fork, event_, 0));
    AddTo(0, 10, fork);
    ASSERT_CU(Cu().cuEventRecord(second_, fork));
    if (joined) ASSERT_CU(Cu().cuStreamWaitEvent(stream_, second_, 0));
    ASSERT_CU(Cu().cuStreamDestroy_v2(fork));
    CUgraph graph = nullptr;
    if (!joined) {
      EXPECT_NE(Cu().cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
      EXPECT_EQ(graph, nullptr);
      continue;
    }
    EXPECT_EQ(Status(stream_), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    AddTo(0, 100, stream_);
    Run(End());
    EXPECT_EQ(Word(), 110u);
  }
}

TEST_F(CaptureTest, ForksHaveToBeJoined) {
  Begin();
  ASSERT_CU(Cu().cuEventRecord(event_, stream_));
  ASSERT_CU(Cu().cuStreamWaitEvent(other_, event_, 0));
  AddTo(0, 1, other_);
  ExpectFailed(CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_EQ(Status(other_), CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(CaptureTest, EndsWhereItBegan) {
  CUgraph graph = nullptr;
  EXPECT_CU(CUDA_ERROR_ILLEGAL_STATE, Cu().cuStreamEndCapture(stream_, &graph));
  Begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_CU(CUDA_ERROR_ILLEGAL_STATE,
            Cu().cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_CU(Cu().cuEventRecord(event_, stream_));
  ASSERT_CU(Cu().cuStreamWaitEvent(other_, event_, 0));
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, Cu().cuStreamEndCapture(other_, &graph));
  Cu().cuStreamEndCapture(stream_, &graph);  // whether the mistake has broken it, is the driver's
  EXPECT_EQ(Status(stream_), CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(CaptureTest, OnlyARelaxedOneEndsInAnotherThread) {
  for (const auto mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                          CU_STREAM_CAPTURE_MODE_RELAXED}) {
    CUgraph graph = nullptr;
    CUresult result = CUDA_ERROR_UNKNOWN;
    Begin(mode);
    std::thread([&] {
      Cu().cuCtxSetCurrent(context_);
      result = Cu().cuStreamEndCapture(stream_, &graph);
    }).join();
    if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
      EXPECT_CU(CUDA_SUCCESS, result);
    } else {
      EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, result);
      Cu().cuStreamEndCapture(stream_, &graph);
    }
    EXPECT_EQ(Status(stream_), CU_STREAM_CAPTURE_STATUS_NONE);
  }
}

TEST_F(CaptureTest, WaitingForACapturedStreamBreaksIt) {
  Begin();
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, Cu().cuStreamSynchronize(stream_));
  EXPECT_EQ(Status(stream_), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, Cu().cuMemsetD32Async(words_, 1, 1, stream_));
  ExpectFailed(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  Begin();
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, Cu().cuStreamQuery(stream_));
  ExpectFailed(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  Begin();
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, Cu().cuCtxSynchronize());
  ExpectFailed(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CaptureTest, CapturedEventsAreNotReal) {
  Begin();
  ASSERT_CU(Cu().cuEventRecord(event_, stream_));
  EXPECT_CU(CUDA_ERROR_CAPTURED_EVENT, Cu().cuEventQuery(event_));
  ExpectFailed(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  Begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  ASSERT_CU(Cu().cuEventRecord(event_, stream_));
  EXPECT_CU(CUDA_ERROR_CAPTURED_EVENT, Cu().cuEventSynchronize(event_));
  ExpectFailed(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  ASSERT_CU(Cu().cuEventRecord(event_, stream_));  // really, this time
  ASSERT_CU(Cu().cuEventSynchronize(event_));
}

TEST_F(CaptureTest, NoWaitCrossesItsBorder) {
  ASSERT_CU(Cu().cuEventRecord(event_, other_));
  Begin();
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, Cu().cuStreamWaitEvent(stream_, event_, 0));
  ExpectFailed(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CaptureTest, TwoDoNotMerge) {
  CUgraph graph = nullptr;
  Begin();
  ASSERT_CU(Cu().cuStreamBeginCapture_v2(other_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_CU(Cu().cuEventRecord(event_, other_));
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_MERGE, Cu().cuStreamWaitEvent(stream_, event_, 0));
  Cu().cuStreamEndCapture(other_, &graph);
  ExpectFailed(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CaptureTest, TheLegacyStreamKeepsAway) {
  CUstream blocking = nullptr;
  CUgraph graph = nullptr;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
            Cu().cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_CU(Cu().cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  ASSERT_CU(Cu().cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, Cu().cuStreamIsCapturing(nullptr, &status));
  EXPECT_EQ(Status(blocking), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, Cu().cuMemsetD32Async(words_, 1, 1, nullptr));
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, Cu().cuStreamEndCapture(blocking, &graph));
  // Beside one that does not block it goes on.
  Begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  ASSERT_CU(Cu().cuMemsetD32Async(words_, 9, 1, nullptr));
  End();
  EXPECT_EQ(Word(), 9u);
}

TEST_F(CaptureTest, TheLegacyStreamFreesNothingBesideABlockingOne) {
  int pools = 0;
  ASSERT_CU(Cu().cuDeviceGetAttribute(&pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0));
  if (pools == 0) GTEST_SKIP() << "the device has no memory pools";
  CUstream blocking = nullptr;
  CUgraph graph = nullptr;
  CUdeviceptr pointer = 0;
  ASSERT_CU(Cu().cuMemAllocAsync(&pointer, 4096, nullptr));
  ASSERT_CU(Cu().cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  ASSERT_CU(Cu().cuCtxSynchronize());
  ASSERT_CU(Cu().cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, Cu().cuMemFreeAsync(pointer, nullptr));
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, Cu().cuMemFreeAsync(pointer, blocking));
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, Cu().cuStreamEndCapture(blocking, &graph));
  ASSERT_CU(Cu().cuMemFreeAsync(pointer, nullptr));
  ASSERT_CU(Cu().cuStreamDestroy_v2(blocking));
}

TEST_F(CaptureTest, UnsafeCallsAreRefusedByMode) {
  CUdeviceptr memory = 0;
  Begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, Cu().cuMemAlloc_v2(&memory, 64));
  ExpectFailed(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  Begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, Cu().cuMemAlloc_v2(&memory, 64));
  ExpectFailed(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  Begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  ASSERT_CU(Cu().cuMemAlloc_v2(&memory, 64));
  End();
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  Begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
  ASSERT_CU(Cu().cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
  ASSERT_CU(Cu().cuMemAlloc_v2(&memory, 64));
  ASSERT_CU(Cu().cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
  End();
  if (!OnSoftwareGpu()) return;  // a card takes any number
  mode = static_cast<CUstreamCaptureMode>(9);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuThreadExchangeStreamCaptureMode(&mode));
}

TEST_F(CaptureTest, MemoryIsFreedWhereItMayBeAllocated) {
  CUdeviceptr first = 0, second = 0, third = 0;
  for (CUdeviceptr* memory : {&first, &second, &third}) {
    ASSERT_CU(Cu().cuMemAlloc_v2(memory, size_t{2} << 20));
    ASSERT_CU(Cu().cuMemsetD8Async(*memory, 1, size_t{2} << 20, stream_));
  }
  ASSERT_CU(Cu().cuStreamSynchronize(stream_));
  for (const auto mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL}) {
    Begin(mode);
    EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, Cu().cuMemFree_v2(first));
    ExpectFailed(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemFree_v2(first));
  const auto free_on_a_thread = [&](CUdeviceptr memory) {
    CUresult result = CUDA_ERROR_UNKNOWN;
    std::thread([&] {
      Cu().cuCtxSetCurrent(context_);
      result = Cu().cuMemFree_v2(memory);
    }).join();
    return result;
  };
  Begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, free_on_a_thread(second));
  ExpectFailed(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  Begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  EXPECT_CU(CUDA_SUCCESS, free_on_a_thread(second));
  End();
  Begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_CU(CUDA_SUCCESS, Cu().cuMemFree_v2(third));
  End();
}

TEST_F(CaptureTest, TheFirstWayToBeginIsRelaxed) {
  if (Cu().cuStreamBeginCapture == nullptr) GTEST_SKIP() << "a driver without the first way";
  CUdeviceptr memory = 0;
  ASSERT_CU(Cu().cuStreamBeginCapture(stream_));
  ASSERT_CU(Cu().cuMemsetD32Async(words_, 4, 1, stream_));
  ASSERT_CU(Cu().cuMemAlloc_v2(&memory, 64));
  End();
}

TEST_F(CaptureTest, ArraysAreMadeAndDestroyedOutsideOnly) {
  const CUDA_ARRAY_DESCRIPTOR descriptor = {8, 8, CU_AD_FORMAT_UNSIGNED_INT8, 1};
  CUarray array = nullptr, other = nullptr;
  ASSERT_CU(Cu().cuArrayCreate_v2(&array, &descriptor));
  Begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, Cu().cuArrayCreate_v2(&other, &descriptor));
  ExpectFailed(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  Begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, Cu().cuArrayDestroy(array));
  ExpectFailed(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_CU(CUDA_SUCCESS, Cu().cuArrayDestroy(array));
}

TEST_F(CaptureTest, OtherThreadsMindGlobalOnesOnly) {
  const auto allocate = [&] {
    void* memory = nullptr;
    CUresult result = CUDA_ERROR_UNKNOWN;
    std::thread([&] {
      Cu().cuCtxSetCurrent(context_);
      result = Cu().cuMemAllocHost_v2(&memory, 64);
    }).join();
    return result;
  };
  Begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  EXPECT_CU(CUDA_SUCCESS, allocate());
  End();
  Begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, allocate());
  ExpectFailed(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CaptureTest, ThreadsCaptureAtOnce) {
  std::atomic<int> wrong = 0;
  const CUfunction add = Kernel("add");
  const auto work = [&](size_t word) {
    CUstream stream = nullptr;
    wrong += Cu().cuCtxSetCurrent(context_) != CUDA_SUCCESS;
    wrong += Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS;
    for (uint32_t i = 0; i < 30; ++i) {
      CUgraph graph = nullptr;
      CUgraphExec exec = nullptr;
      CUdeviceptr to = words_ + 4 * word;
      uint32_t count = 1;
      const auto mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
      wrong += Cu().cuStreamBeginCapture_v2(stream, mode) != CUDA_SUCCESS;
      wrong += Launch(add, 1, 1, stream, {&to, &i, &count}) != CUDA_SUCCESS;
      wrong += Cu().cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS;
      wrong += Cu().cuGraphInstantiateWithFlags(&exec, graph, 0) != CUDA_SUCCESS;
      wrong += Cu().cuGraphDestroy(graph) != CUDA_SUCCESS;
      wrong += Cu().cuGraphLaunch(exec, stream) != CUDA_SUCCESS;
      wrong += Cu().cuGraphLaunch(exec, stream) != CUDA_SUCCESS;
      wrong += Cu().cuGraphExecDestroy(exec) != CUDA_SUCCESS;
    }
    wrong += Cu().cuStreamSynchronize(stream) != CUDA_SUCCESS;
    wrong += Cu().cuStreamDestroy_v2(stream) != CUDA_SUCCESS;
  };
  std::vector<std::thread> threads;
  for (size_t word = 0; word < 4; ++word) threads.emplace_back(work, word);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  for (size_t word = 0; word < 4; ++word) EXPECT_EQ(Word(word), 2u * (29 * 30 / 2));
}

TEST_F(CaptureTest, TellsItsStateAndTakesOtherDependencies) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  size_t count = 0;
  EXPECT_CU(CUDA_ERROR_ILLEGAL_STATE,
            Cu().cuStreamUpdateCaptureDependencies(stream_, nullptr, 0, 0));
  Begin();
  ASSERT_CU(Cu().cuMemsetD32Async(words_, 1, 1, stream_));
  ASSERT_CU(Cu().cuStreamGetCaptureInfo_v2(stream_, &status, &id, &graph, &nodes, &count));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  ASSERT_EQ(count, 1u);
  // A node of the program's own, put in between.
  CUgraphNode between = nullptr;
  const CUDA_MEMSET_NODE_PARAMS fill = {words_ + 4, 0, 6, 4, 1, 1};
  ASSERT_CU(Cu().cuGraphAddMemsetNode(&between, graph, nodes, 1, &fill, context_));
  ASSERT_CU(Cu().cuStreamUpdateCaptureDependencies(stream_, &between, 1,
                                                   CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  AddTo(1, 10, stream_);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuStreamUpdateCaptureDependencies(stream_, &between, 1, 9));
  EXPECT_EQ(End(), graph);
  Run(graph);
  EXPECT_EQ(Word(0), 1u);
  EXPECT_EQ(Word(1), 16u);
  EXPECT_NE(Cu().cuStreamGetCaptureInfo_v2(stream_, nullptr, &id, nullptr, nullptr, nullptr),
            CUDA_SUCCESS);
  EXPECT_NE(Cu().cuStreamIsCapturing(stream_, nullptr), CUDA_SUCCESS);
}

TEST_F(CaptureTest, ExternalEventsBecomeNodes) {
  ASSERT_CU(Cu().cuEventRecord(event_, other_));
  Begin(CU_STREAM_CAPTURE_MODE_RELAXED);
  ASSERT_CU(Cu().cuStreamWaitEvent(stream_, event_, CU_EVENT_WAIT_EXTERNAL));
  ASSERT_CU(Cu().cuMemsetD32Async(words_, 3, 1, stream_));
  ASSERT_CU(Cu().cuEventRecordWithFlags(second_, stream_, CU_EVENT_RECORD_EXTERNAL));
  const CUgraph graph = End();
  EXPECT_EQ(Types(graph), (std::vector{CU_GRAPH_NODE_TYPE_WAIT_EVENT, CU_GRAPH_NODE_TYPE_MEMSET,
                                       CU_GRAPH_NODE_TYPE_EVENT_RECORD}));
  Run(graph);
  ASSERT_CU(Cu().cuEventSynchronize(second_));
  EXPECT_EQ(Word(), 3u);
  EXPECT_CU(CUDA_ERROR_ILLEGAL_STATE,
            Cu().cuEventRecordWithFlags(second_, stream_, CU_EVENT_RECORD_EXTERNAL));
}

// A graph goes into another as a child node, which the program adds itself.
TEST_F(CaptureTest, NoGraphIsLaunchedInIt) {
  CUgraph inner = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_CU(Cu().cuStreamBeginCapture_v2(other_, CU_STREAM_CAPTURE_MODE_RELAXED));
  AddTo(0, 5, other_);
  ASSERT_CU(Cu().cuStreamEndCapture(other_, &inner));
  ASSERT_CU(Cu().cuGraphInstantiateWithFlags(&exec, inner, 0));
  Begin();
  ASSERT_CU(Cu().cuMemsetD32Async(words_, 100, 1, stream_));
  EXPECT_CU(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, Cu().cuGraphLaunch(exec, stream_));
  ExpectFailed(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  ASSERT_CU(Cu().cuGraphLaunch(exec, stream_));
  ASSERT_CU(Cu().cuStreamSynchronize(stream_));
  EXPECT_EQ(Word(), 5u);
}

TEST_F(CaptureTest, ThePerThreadStreamCanBeCaptured) {
  CUgraph graph = nullptr;
  ASSERT_CU(Cu().cuStreamBeginCapture_v2_ptsz(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_CU(Cu().cuMemsetD32Async_ptsz(words_, 8, 1, nullptr));
  ASSERT_CU(Cu().cuStreamEndCapture_ptsz(nullptr, &graph));
  EXPECT_EQ(Word(), 0u);
  Run(graph);
  EXPECT_EQ(Word(), 8u);
}

TEST_F(CaptureTest, GoesIntoAGraphThatThereIs) {
  if (Cu().cuStreamBeginCaptureToGraph == nullptr) GTEST_SKIP() << "only since 12.3";
  CUgraph graph = nullptr, ended = nullptr;
  CUgraphNode first = nullptr;
  ASSERT_CU(Cu().cuGraphCreate(&graph, 0));
  const CUDA_MEMSET_NODE_PARAMS fill = {words_, 0, 6, 4, 1, 1};
  ASSERT_CU(Cu().cuGraphAddMemsetNode(&first, graph, nullptr, 0, &fill, context_));
  ASSERT_CU(Cu().cuStreamBeginCaptureToGraph(stream_, graph, &first, nullptr, 1,
                                             CU_STREAM_CAPTURE_MODE_GLOBAL));
  AddTo(0, 1, stream_);
  ASSERT_CU(Cu().cuStreamEndCapture(stream_, &ended));
  EXPECT_EQ(ended, graph);
  Run(graph);
  EXPECT_EQ(Word(), 7u);
}

}  // namespace
}  // namespace tandem::driver_test
