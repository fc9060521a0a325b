// What is refused, and how: streams, events, values in memory, capture.
#include "tests/driver/errors.h"

namespace tandem::driver_test {
namespace {

const Answers kNotReady = {CUDA_ERROR_NOT_READY};
const Answers kIllegalState = {CUDA_ERROR_ILLEGAL_STATE};
const Answers kUnsupported = {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED};

class ErrorsStreamTest : public ErrorsTest {
 protected:
  void SetUp() override {
    ErrorsTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_CU(Cu().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    ASSERT_CU(Cu().cuEventCreate(&event_, CU_EVENT_DEFAULT));
    block_ = Allocate(64);
  }
  void TearDown() override {
    if (stream_ != nullptr) TAKES(cuStreamDestroy_v2, stream_);
    if (event_ != nullptr) TAKES(cuEventDestroy_v2, event_);
    ErrorsTest::TearDown();
  }
  CUstream stream_ = nullptr;
  CUevent event_ = nullptr;
  CUdeviceptr block_ = 0;
};

TEST_F(ErrorsStreamTest, Streams) {
  CUstream stream = nullptr;
  REFUSES(kValue, cuStreamCreate, nullptr, 0);
  REFUSES(kValue, cuStreamCreate, &stream, 0x100);
  REFUSES(kValue, cuStreamCreateWithPriority, nullptr, 0, 0);
  REFUSES(kValue, cuStreamCreateWithPriority, &stream, 0x100, 0);
  EXPECT_EQ(stream, nullptr);
  REFUSES(kNullHandle, cuStreamDestroy, nullptr);
  REFUSES(kNullHandle, cuStreamDestroy_v2, nullptr);
  REFUSES(kValue, cuStreamGetFlags, stream_, nullptr);
  REFUSES(kValue, cuStreamGetPriority, stream_, nullptr);
  REFUSES(kValue, cuStreamGetCtx, stream_, nullptr);
  REFUSES(kValue, cuStreamGetId, stream_, nullptr);
  REFUSES(kValue, cuStreamIsCapturing, stream_, nullptr);
  REFUSES(kNullHandle, cuStreamWaitEvent, stream_, nullptr, 0);
  REFUSES(kValue, cuStreamWaitEvent, stream_, event_, 0x100);
  REFUSES(kValue, cuStreamAddCallback, stream_, nullptr, nullptr, 0);
  const CUstreamCallback callback = [](CUstream, CUresult, void*) {};
  REFUSES(kValue, cuStreamAddCallback, stream_, callback, nullptr, 1);
  REFUSES(kValue, cuLaunchHostFunc, stream_, nullptr, nullptr);
}

TEST_F(ErrorsStreamTest, AttributesOfStreams) {
  CUlaunchAttributeValue value = {};
  constexpr auto kPolicy = CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY;
  const auto no_such = NoSuch<CUlaunchAttributeID>();
  REFUSES(kValue, cuStreamGetAttribute, stream_, kPolicy, nullptr);
  REFUSES(kValue, cuStreamGetAttribute, stream_, no_such, &value);
  REFUSES(kValue, cuStreamGetAttribute, stream_, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value);
  REFUSES(kValue, cuStreamSetAttribute, stream_, kPolicy, nullptr);
  REFUSES(kValue, cuStreamSetAttribute, stream_, no_such, &value);
  REFUSES(kValue, cuStreamSetAttribute, stream_, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value);
  WithoutContext([&] {
    REFUSES(kContext, cuStreamGetAttribute, nullptr, kPolicy, &value);
    REFUSES(kContext, cuStreamSetAttribute, nullptr, kPolicy, &value);
    REFUSES(kContext, cuStreamCopyAttributes, nullptr, nullptr);
  });
}

TEST_F(ErrorsStreamTest, Events) {
  CUevent event = nullptr;
  REFUSES(kValue, cuEventCreate, nullptr, 0);
  REFUSES(kValue, cuEventCreate, &event, 0x100);
  REFUSES(kValue, cuEventCreate, &event, CU_EVENT_INTERPROCESS);  // with times
  EXPECT_EQ(event, nullptr);
  REFUSES(kNullHandle, cuEventDestroy, nullptr);
  REFUSES(kNullHandle, cuEventDestroy_v2, nullptr);
  REFUSES(kNullHandle, cuEventRecord, nullptr, stream_);
  REFUSES(kNullHandle, cuEventRecordWithFlags, nullptr, stream_, 0);
  REFUSES(kValue, cuEventRecordWithFlags, event_, stream_, 0x100);
  REFUSES(kNullHandle, cuEventQuery, nullptr);
  REFUSES(kNullHandle, cuEventSynchronize, nullptr);
}

TEST_F(ErrorsStreamTest, TimesBetweenEvents) {
  CUevent untimed = nullptr, last = nullptr;
  float milliseconds = 0;
  TAKES(cuEventCreate, &untimed, CU_EVENT_DISABLE_TIMING);
  TAKES(cuEventCreate, &last, CU_EVENT_DEFAULT);
  REFUSES(kHandle, cuEventElapsedTime, &milliseconds, event_, last);  // not recorded
  TAKES(cuEventRecord, event_, stream_);
  TAKES(cuEventRecord, untimed, stream_);
  REFUSES(kNullHandle, cuEventElapsedTime, &milliseconds, nullptr, event_);
  REFUSES(kNullHandle, cuEventElapsedTime, &milliseconds, event_, nullptr);
  {
    Door door;
    door.HoldIn(stream_);
    TAKES(cuEventRecord, last, stream_);
    REFUSES(kNotReady, cuEventQuery, last);
    REFUSES(kNotReady, cuStreamQuery, stream_);
    REFUSES(kNotReady, cuEventElapsedTime, &milliseconds, event_, last);
  }
  TAKES(cuStreamSynchronize, stream_);
  REFUSES(kHandle, cuEventElapsedTime, &milliseconds, event_, untimed);
  REFUSES(kValueOrHandle, cuEventElapsedTime, nullptr, event_, last);
  TAKES(cuEventElapsedTime, &milliseconds, event_, last);
  float again = -1;
  TAKES(cuEventElapsedTime_v2, &again, event_, last);
  EXPECT_TRUE(again == milliseconds || Cu().cuEventElapsedTime_v2 == nullptr);
  REFUSES(kHandle, cuEventElapsedTime_v2, &milliseconds, event_, untimed);
  TAKES(cuEventDestroy, untimed);
  TAKES(cuEventDestroy_v2, last);
}

TEST_F(ErrorsStreamTest, AnEventIsRecordedInItsOwnContext) {
  CUcontext second = nullptr;
  CUevent event = nullptr;
  TAKES(cuCtxCreate_v2, &second, 0, 0);
  TAKES(cuEventCreate, &event, 0);
  REFUSES(kHandle, cuEventRecord, event, stream_);
  REFUSES(kHandle, cuEventRecordWithFlags, event, stream_, 0);
  TAKES(cuEventDestroy_v2, event);
  TAKES(cuCtxDestroy_v2, second);
}

TEST_F(ErrorsStreamTest, ValuesInMemory) {
  CUstreamBatchMemOpParams none = {};
  none.operation = NoSuch<CUstreamBatchMemOpType>();
  // The calls before 11.7 are there, but a driver may be told to keep them switched off.
  const Answers value_or_off = {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED};
  REFUSES(kValue, cuStreamWaitValue32_v2, stream_, 0x10, 1, 0);
  REFUSES(kValue, cuStreamWaitValue32_v2, stream_, block_ + 2, 1, 0);
  REFUSES(kValue, cuStreamWaitValue32_v2, stream_, block_, 1, 0x100);
  REFUSES(kValue, cuStreamWaitValue64_v2, stream_, 0x10, 1, 0);
  REFUSES(kValue, cuStreamWaitValue64_v2, stream_, block_ + 4, 1, 0);
  REFUSES(kValue, cuStreamWriteValue32_v2, stream_, 0x10, 1, 0);
  REFUSES(kValue, cuStreamWriteValue32_v2, stream_, block_, 1, 0x100);
  REFUSES(kValue, cuStreamWriteValue64_v2, stream_, 0x10, 1, 0);
  REFUSES(kValue, cuStreamWriteValue64_v2, stream_, block_ + 4, 1, 0);
  REFUSES(kValue, cuStreamBatchMemOp_v2, stream_, 1, nullptr, 0);
  REFUSES(kValue, cuStreamBatchMemOp_v2, stream_, 1, &none, 0);
  // More than one call takes. A card's driver may read all of them first.
  if (OnSoftwareGpu()) REFUSES(kValue, cuStreamBatchMemOp_v2, stream_, 1 << 20, &none, 0);
  REFUSES(value_or_off, cuStreamWaitValue32, stream_, 0x10, 1, 0);
  REFUSES(value_or_off, cuStreamWaitValue64, stream_, block_ + 4, 1, 0);
  REFUSES(value_or_off, cuStreamWriteValue32, stream_, block_ + 2, 1, 0);
  REFUSES(value_or_off, cuStreamWriteValue64, stream_, 0x10, 1, 0);
  REFUSES(value_or_off, cuStreamBatchMemOp, stream_, 1, &none, 0);
}

TEST_F(ErrorsStreamTest, BeginningToCapture) {
  constexpr auto kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL;
  const auto no_such = NoSuch<CUstreamCaptureMode>();
  const auto legacy = reinterpret_cast<CUstream>(CU_STREAM_LEGACY_VALUE);
  CUgraph graph = nullptr, other = nullptr;
  CUgraphNode node = nullptr;
  REFUSES(kUnsupported, cuStreamBeginCapture, nullptr);
  REFUSES(kUnsupported, cuStreamBeginCapture_v2, nullptr, kGlobal);
  REFUSES(kUnsupported, cuStreamBeginCapture_v2, legacy, kGlobal);
  REFUSES(kValue, cuStreamBeginCapture_v2, stream_, no_such);
  REFUSES(kValue, cuStreamBeginCaptureToGraph, stream_, nullptr, nullptr, nullptr, 0, kGlobal);
  TAKES(cuGraphCreate, &graph, 0);
  TAKES(cuGraphCreate, &other, 0);
  TAKES(cuGraphAddEmptyNode, &node, other, nullptr, 0);
  REFUSES(kValue, cuStreamBeginCaptureToGraph, stream_, graph, nullptr, nullptr, 1, kGlobal);
  REFUSES(kValue, cuStreamBeginCaptureToGraph, stream_, graph, &node, nullptr, 1, kGlobal);
  REFUSES(kValue, cuStreamBeginCaptureToGraph, stream_, graph, nullptr, nullptr, 0, no_such);
  TAKES(cuGraphDestroy, graph);
  TAKES(cuGraphDestroy, other);
  TAKES(cuStreamBeginCapture_v2, stream_, CU_STREAM_CAPTURE_MODE_RELAXED);
  REFUSES(kIllegalState, cuStreamBeginCapture, stream_);
  REFUSES(kIllegalState, cuStreamBeginCapture_v2, stream_, kGlobal);
  TAKES(cuStreamEndCapture, stream_, &graph);
  TAKES(cuGraphDestroy, graph);
}

TEST_F(ErrorsStreamTest, CapturesUnderWay) {
  CUstreamCaptureStatus status = {};
  CUgraph graph = nullptr, other = nullptr;
  CUgraphNode node = nullptr;
  auto mode = NoSuch<CUstreamCaptureMode>();
  REFUSES(kIllegalState, cuStreamEndCapture, stream_, &graph);
  REFUSES(kIllegalState, cuStreamUpdateCaptureDependencies, stream_, nullptr, 0, 0);
  REFUSES(kIllegalState, cuStreamUpdateCaptureDependencies_v2, stream_, nullptr, nullptr, 0, 0);
  REFUSES(kValue, cuStreamGetCaptureInfo, stream_, nullptr, nullptr);
  REFUSES(kValue, cuStreamGetCaptureInfo_v2, stream_, nullptr, nullptr, nullptr, nullptr, nullptr);
  REFUSES(kValue, cuStreamGetCaptureInfo_v3, stream_, nullptr, nullptr, nullptr, nullptr, nullptr,
          nullptr);
  REFUSES(kValue, cuThreadExchangeStreamCaptureMode, nullptr);
  if (OnSoftwareGpu())
    REFUSES(kValue, cuThreadExchangeStreamCaptureMode, &mode);  // a card takes it
  TAKES(cuGraphCreate, &other, 0);
  TAKES(cuGraphAddEmptyNode, &node, other, nullptr, 0);
  TAKES(cuStreamBeginCapture_v2, stream_, CU_STREAM_CAPTURE_MODE_RELAXED);
  REFUSES(kValue, cuStreamUpdateCaptureDependencies, stream_, &node, 1, 0);  // another graph's
  REFUSES(kValue, cuStreamUpdateCaptureDependencies, stream_, nullptr, 1, 0);
  REFUSES(kValue, cuStreamUpdateCaptureDependencies, stream_, nullptr, 0, 0x100);
  REFUSES(kValue, cuStreamUpdateCaptureDependencies_v2, stream_, &node, nullptr, 1, 0);
  REFUSES(kValue, cuStreamUpdateCaptureDependencies_v2, stream_, nullptr, nullptr, 0, 0x100);
  TAKES(cuStreamIsCapturing, stream_, &status);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  TAKES(cuStreamEndCapture, stream_, &graph);
  TAKES(cuGraphDestroy, graph);
  TAKES(cuGraphDestroy, other);
}

TEST_F(ErrorsStreamTest, CapturesOfOtherThreads) {
  const Answers wrong_thread = {CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD};
  const Answers value_or_state = {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_ILLEGAL_STATE};
  CUgraph graph = nullptr;
  REFUSES(value_or_state, cuStreamEndCapture, stream_, nullptr);
  TAKES(cuStreamBeginCapture_v2, stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  std::thread([&] {
    TAKES(cuCtxSetCurrent, context_);
    REFUSES(wrong_thread, cuStreamEndCapture, stream_, &graph);
  }).join();
  Cu().cuStreamEndCapture(stream_, &graph);  // if it still can
}

TEST_F(ErrorsStreamTest, TheLegacyStreamBesideACapture) {
  const Answers implicit = {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT};
  CUstream blocking = nullptr;
  CUgraph graph = nullptr;
  CUstreamCaptureStatus status = {};
  TAKES(cuStreamCreate, &blocking, CU_STREAM_DEFAULT);
  TAKES(cuStreamBeginCapture_v2, blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
  REFUSES(implicit, cuStreamIsCapturing, nullptr, &status);
  REFUSES(implicit, cuStreamGetCaptureInfo, nullptr, &status, nullptr);
  REFUSES(implicit, cuStreamGetCaptureInfo_v2, nullptr, &status, nullptr, nullptr, nullptr,
          nullptr);
  TAKES(cuStreamEndCapture, blocking, &graph);
  TAKES(cuGraphDestroy, graph);
  TAKES(cuStreamDestroy_v2, blocking);
}

TEST_F(ErrorsStreamTest, WhatCannotBeCaptured) {
  const Answers broken = {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED};
  const CUstreamCallback callback = [](CUstream, CUresult, void*) {};
  const std::vector<std::function<void()>> calls = {
      [&] { REFUSES(kUnsupported, cuStreamSynchronize, stream_); },
      [&] { REFUSES(kUnsupported, cuStreamQuery, stream_); },
      [&] { REFUSES(kUnsupported, cuStreamAddCallback, stream_, callback, nullptr, 0); },
  };
  for (const auto& call : calls) {
    CUgraph graph = nullptr;
    TAKES(cuStreamBeginCapture_v2, stream_, CU_STREAM_CAPTURE_MODE_RELAXED);
    call();
    REFUSES(broken, cuMemsetD8Async, block_, 0, 4, stream_);
    REFUSES(broken, cuStreamEndCapture, stream_, &graph);
    EXPECT_EQ(graph, nullptr);
  }
}

TEST_F(ErrorsStreamTest, NoCurrentContext) {
  WithoutContext([&] {
    CUstream stream = nullptr;
    CUevent event = nullptr;
    unsigned int flags = 0;
    int priority = 0;
    unsigned long long id = 0;
    CUcontext context = nullptr;
    CUstreamCaptureStatus status = {};
    const CUstreamCallback callback = [](CUstream, CUresult, void*) {};
    const CUhostFn function = [](void*) {};
    REFUSES(kContext, cuStreamCreate, &stream, 0);
    REFUSES(kContext, cuStreamCreateWithPriority, &stream, 0, 0);
    REFUSES(kContext, cuStreamQuery, nullptr);
    REFUSES(kContext, cuStreamSynchronize, nullptr);
    REFUSES(kContext, cuStreamGetFlags, nullptr, &flags);
    REFUSES(kContext, cuStreamGetPriority, nullptr, &priority);
    REFUSES(kContext, cuStreamGetCtx, nullptr, &context);
    REFUSES(kContext, cuStreamGetId, nullptr, &id);
    REFUSES(kContext, cuStreamIsCapturing, nullptr, &status);
    REFUSES(kContext, cuStreamAddCallback, nullptr, callback, nullptr, 0);
    REFUSES(kContext, cuLaunchHostFunc, nullptr, function, nullptr);
    REFUSES(kContext, cuStreamWaitEvent, nullptr, event_, 0);
    REFUSES(kContext, cuEventCreate, &event, 0);
    REFUSES(kContext, cuEventRecord, event_, nullptr);
    REFUSES(kContext, cuEventRecordWithFlags, event_, nullptr, 0);
  });
}

TEST_F(ErrorsStreamTest, NoCurrentContextForValues) {
  WithoutContext([&] {
    const Answers context_or_off = {CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_NOT_SUPPORTED};
    CUstreamBatchMemOpParams write = {};
    write.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    write.writeValue.address = block_;
    REFUSES(kContext, cuStreamWaitValue32_v2, nullptr, block_, 1, 0);
    REFUSES(kContext, cuStreamWaitValue64_v2, nullptr, block_, 1, 0);
    REFUSES(kContext, cuStreamWriteValue32_v2, nullptr, block_, 1, 0);
    REFUSES(kContext, cuStreamWriteValue64_v2, nullptr, block_, 1, 0);
    REFUSES(kContext, cuStreamBatchMemOp_v2, nullptr, 1, &write, 0);
    REFUSES(context_or_off, cuStreamWaitValue32, nullptr, block_, 1, 0);
    REFUSES(context_or_off, cuStreamWaitValue64, nullptr, block_, 1, 0);
    REFUSES(context_or_off, cuStreamWriteValue32, nullptr, block_, 1, 0);
    REFUSES(context_or_off, cuStreamWriteValue64, nullptr, block_, 1, 0);
    REFUSES(context_or_off, cuStreamBatchMemOp, nullptr, 1, &write, 0);
  });
}

// That there is no context, and that the default stream is not captured: either may be said first.
TEST_F(ErrorsStreamTest, NoCurrentContextForCaptures) {
  CUgraph graph = nullptr;
  TAKES(cuGraphCreate, &graph, 0);
  WithoutContext([&] {
    constexpr auto kMode = CU_STREAM_CAPTURE_MODE_RELAXED;
    const Answers either = {CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED};
    const Answers neither = {CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_ILLEGAL_STATE};
    CUstreamCaptureStatus status = {};
    CUgraph captured = nullptr;
    REFUSES(either, cuStreamBeginCapture, nullptr);
    REFUSES(either, cuStreamBeginCapture_v2, nullptr, kMode);
    REFUSES(either, cuStreamBeginCaptureToGraph, nullptr, graph, nullptr, nullptr, 0, kMode);
    REFUSES(neither, cuStreamEndCapture, nullptr, &captured);
    REFUSES(neither, cuStreamUpdateCaptureDependencies, nullptr, nullptr, 0, 0);
    REFUSES(neither, cuStreamUpdateCaptureDependencies_v2, nullptr, nullptr, nullptr, 0, 0);
    REFUSES(kContext, cuStreamGetCaptureInfo, nullptr, &status, nullptr);
    REFUSES(kContext, cuStreamGetCaptureInfo_v2, nullptr, &status, nullptr, nullptr, nullptr,
            nullptr);
    REFUSES(kContext, cuStreamGetCaptureInfo_v3, nullptr, &status, nullptr, nullptr, nullptr,
            nullptr, nullptr);
  });
  TAKES(cuGraphDestroy, graph);
}

}  // namespace
}  // namespace tandem::driver_test
