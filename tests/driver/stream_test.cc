// Streams, events and host functions. A host function that waits for the test is what holds a
// stream back, so nothing here depends on time.
#include <atomic>

#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

using StreamTest = DriverTest;

TEST_F(StreamTest, DoesThingsInOrder) {
  CUstream stream = nullptr;
  ASSERT_CU(Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr device = Allocate(4);
  Door door;
  door.HoldIn(stream);
  ASSERT_CU(Cu().cuMemsetD32Async(device, 1, 1, stream));
  ASSERT_CU(Cu().cuMemsetD32Async(device, 2, 1, stream));
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuStreamQuery(stream));
  door.Open();
  ASSERT_CU(Cu().cuStreamSynchronize(stream));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamQuery(stream));
  EXPECT_EQ(Read(device, 4), (std::vector<uint8_t>{2, 0, 0, 0}));
  ASSERT_CU(Cu().cuStreamDestroy_v2(stream));
  if (OnSoftwareGpu()) {  // it has gone
    EXPECT_NE(Cu().cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  }
}

TEST_F(StreamTest, StreamsAreIndependent) {
  CUstream held = nullptr, free = nullptr;
  ASSERT_CU(Cu().cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
  ASSERT_CU(Cu().cuStreamCreate(&free, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr device = Allocate(4);
  Door door;
  door.HoldIn(held);
  ASSERT_CU(Cu().cuMemsetD32Async(device, 5, 1, free));
  ASSERT_CU(Cu().cuStreamSynchronize(free));
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuStreamQuery(held));
  door.Open();
  ASSERT_CU(Cu().cuStreamSynchronize(held));
  ASSERT_CU(Cu().cuStreamDestroy_v2(held));
  ASSERT_CU(Cu().cuStreamDestroy_v2(free));
}

TEST_F(StreamTest, TheLegacyStreamWaitsForBlockingOnes) {
  CUstream blocking = nullptr, other = nullptr;
  ASSERT_CU(Cu().cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  ASSERT_CU(Cu().cuStreamCreate(&other, CU_STREAM_DEFAULT));
  const CUdeviceptr device = Allocate(4);
  Door door;
  door.HoldIn(blocking);
  ASSERT_CU(Cu().cuMemsetD32Async(device, 1, 1, nullptr));
  ASSERT_CU(Cu().cuMemsetD32Async(device, 2, 1, other));  // after the legacy stream's
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuStreamQuery(nullptr));
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuStreamQuery(other));
  door.Open();
  ASSERT_CU(Cu().cuCtxSynchronize());
  EXPECT_EQ(Read(device, 4), (std::vector<uint8_t>{2, 0, 0, 0}));
  ASSERT_CU(Cu().cuStreamDestroy_v2(blocking));
  ASSERT_CU(Cu().cuStreamDestroy_v2(other));
}

TEST_F(StreamTest, ThePerThreadStreamIsOneOfItsOwn) {
  const auto per_thread = reinterpret_cast<CUstream>(CU_STREAM_PER_THREAD_VALUE);
  CUstream held = nullptr;
  ASSERT_CU(Cu().cuStreamCreate(&held, CU_STREAM_DEFAULT));
  const CUdeviceptr device = Allocate(4);
  Door door;
  door.HoldIn(held);
  ASSERT_CU(Cu().cuMemsetD32Async(device, 3, 1, per_thread));
  ASSERT_CU(Cu().cuStreamSynchronize(per_thread));
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuStreamQuery(held));
  door.Open();
  ASSERT_CU(Cu().cuStreamSynchronize(held));
  ASSERT_CU(Cu().cuStreamDestroy_v2(held));
}

TEST_F(StreamTest, VariantsTakeStreamZeroForTheThreadsOwn) {
  CUstream held = nullptr;
  ASSERT_CU(Cu().cuStreamCreate(&held, CU_STREAM_DEFAULT));
  const CUdeviceptr device = Allocate(4);
  Door door;
  door.HoldIn(held);
  // On the legacy stream each of these would wait for what is held.
  ASSERT_CU(Cu().cuMemsetD32Async_ptsz(device, 3, 1, nullptr));
  ASSERT_CU(Cu().cuStreamSynchronize_ptsz(nullptr));
  uint32_t value = 0;
  ASSERT_CU(Cu().cuMemcpyDtoH_v2_ptds(&value, device, 4));
  EXPECT_EQ(value, 3u);
  EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamQuery_ptsz(nullptr));
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuStreamQuery(held));
  door.Open();
  ASSERT_CU(Cu().cuStreamSynchronize(held));
  ASSERT_CU(Cu().cuStreamDestroy_v2(held));
}

TEST_F(StreamTest, EventsOrderStreams) {
  CUstream first = nullptr, second = nullptr;
  CUevent event = nullptr;
  ASSERT_CU(Cu().cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
  ASSERT_CU(Cu().cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
  ASSERT_CU(Cu().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuEventQuery(event));  // never recorded
  const CUdeviceptr device = Allocate(4);
  Door door;
  door.HoldIn(first);
  ASSERT_CU(Cu().cuMemsetD32Async(device, 1, 1, first));
  ASSERT_CU(Cu().cuEventRecord(event, first));
  ASSERT_CU(Cu().cuStreamWaitEvent(second, event, 0));
  ASSERT_CU(Cu().cuMemsetD32Async(device, 2, 1, second));
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuEventQuery(event));
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuStreamQuery(second));
  door.Open();
  ASSERT_CU(Cu().cuStreamSynchronize(second));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuEventQuery(event));
  EXPECT_EQ(Read(device, 4), (std::vector<uint8_t>{2, 0, 0, 0}));
  ASSERT_CU(Cu().cuEventDestroy_v2(event));
  EXPECT_NE(Cu().cuEventQuery(event), CUDA_SUCCESS);
  ASSERT_CU(Cu().cuStreamDestroy_v2(first));
  ASSERT_CU(Cu().cuStreamDestroy_v2(second));
}

TEST_F(StreamTest, AnEventMeansItsLastRecord) {
  CUstream held = nullptr, free = nullptr;
  CUevent event = nullptr;
  ASSERT_CU(Cu().cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
  ASSERT_CU(Cu().cuStreamCreate(&free, CU_STREAM_NON_BLOCKING));
  ASSERT_CU(Cu().cuEventCreate(&event, 0));
  Door door;
  door.HoldIn(held);
  ASSERT_CU(Cu().cuEventRecord(event, held));
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuEventQuery(event));
  ASSERT_CU(Cu().cuEventRecord(event, free));
  ASSERT_CU(Cu().cuEventSynchronize(event));
  door.Open();
  ASSERT_CU(Cu().cuStreamSynchronize(held));
  ASSERT_CU(Cu().cuEventDestroy_v2(event));
  ASSERT_CU(Cu().cuStreamDestroy_v2(held));
  ASSERT_CU(Cu().cuStreamDestroy_v2(free));
}

TEST_F(StreamTest, EventsTellTime) {
  CUevent start = nullptr, end = nullptr, plain = nullptr;
  ASSERT_CU(Cu().cuEventCreate(&start, 0));
  ASSERT_CU(Cu().cuEventCreate(&end, 0));
  ASSERT_CU(Cu().cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
  float ms = -1;
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, Cu().cuEventElapsedTime(&ms, start, end));
  const CUdeviceptr device = Allocate(1 << 20);
  ASSERT_CU(Cu().cuEventRecord(start, nullptr));
  ASSERT_CU(Cu().cuMemsetD8Async(device, 1, 1 << 20, nullptr));
  ASSERT_CU(Cu().cuEventRecord(end, nullptr));
  ASSERT_CU(Cu().cuEventRecord(plain, nullptr));
  ASSERT_CU(Cu().cuEventSynchronize(end));
  ASSERT_CU(Cu().cuEventElapsedTime(&ms, start, end));
  EXPECT_GE(ms, 0.0f);
  ASSERT_CU(Cu().cuEventSynchronize(plain));
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, Cu().cuEventElapsedTime(&ms, start, plain));
  Door door;
  door.HoldIn(nullptr);
  ASSERT_CU(Cu().cuEventRecord(end, nullptr));
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuEventElapsedTime(&ms, start, end));
  door.Open();
  ASSERT_CU(Cu().cuCtxSynchronize());
}

struct Called {
  std::atomic<int> times = 0;
  CUresult status = CUDA_ERROR_UNKNOWN;
  CUresult inside = CUDA_SUCCESS;
};

TEST_F(StreamTest, CallbacksComeInTurnAndMayNotCallBack) {
  CUstream stream = nullptr;
  ASSERT_CU(Cu().cuStreamCreate(&stream, 0));
  Called called;
  ASSERT_CU(Cu().cuStreamAddCallback(
      stream,
      [](CUstream, CUresult status, void* data) {
        auto* seen = static_cast<Called*>(data);
        CUdeviceptr pointer = 0;
        seen->inside = Cu().cuMemAlloc_v2(&pointer, 16);
        seen->status = status;
        seen->times += 1;
      },
      &called, 0));
  ASSERT_CU(Cu().cuStreamSynchronize(stream));
  EXPECT_EQ(called.times, 1);
  EXPECT_CU(CUDA_SUCCESS, called.status);
  EXPECT_NE(called.inside, CUDA_SUCCESS);
  ASSERT_CU(Cu().cuStreamDestroy_v2(stream));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuLaunchHostFunc(nullptr, nullptr, nullptr));
}

TEST_F(StreamTest, KeepsFlagsAndPriority) {
  CUstream stream = nullptr;
  int least = 0, greatest = 0, priority = 1;
  unsigned int flags = 0;
  ASSERT_CU(Cu().cuCtxGetStreamPriorityRange(&least, &greatest));
  ASSERT_CU(Cu().cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest));
  ASSERT_CU(Cu().cuStreamGetPriority(stream, &priority));
  ASSERT_CU(Cu().cuStreamGetFlags(stream, &flags));
  EXPECT_EQ(priority, greatest);
  EXPECT_EQ(flags, CU_STREAM_NON_BLOCKING);
  CUcontext context = nullptr;
  ASSERT_CU(Cu().cuStreamGetCtx(stream, &context));
  EXPECT_EQ(context, context_);
  ASSERT_CU(Cu().cuStreamDestroy_v2(stream));
}

TEST_F(StreamTest, HasAttributesThatAreRemembered) {
  if (Cu().cuStreamGetAttribute == nullptr) GTEST_SKIP() << "a driver before CUDA 11";
  CUstream from = nullptr, to = nullptr;
  ASSERT_CU(Cu().cuStreamCreate(&from, CU_STREAM_NON_BLOCKING));
  ASSERT_CU(Cu().cuStreamCreate(&to, CU_STREAM_NON_BLOCKING));
  constexpr auto kPolicy = CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY;
  CUlaunchAttributeValue value = {}, seen = {};
  value.syncPolicy = 4;
  ASSERT_CU(Cu().cuStreamSetAttribute(from, kPolicy, &value));
  ASSERT_CU(Cu().cuStreamGetAttribute(from, kPolicy, &seen));
  EXPECT_EQ(seen.syncPolicy, 4);
  ASSERT_CU(Cu().cuStreamGetAttribute(to, kPolicy, &seen));
  EXPECT_NE(seen.syncPolicy, 4);
  ASSERT_CU(Cu().cuStreamCopyAttributes(to, from));
  ASSERT_CU(Cu().cuStreamGetAttribute(to, kPolicy, &seen));
  EXPECT_EQ(seen.syncPolicy, 4);
  ASSERT_CU(Cu().cuStreamGetAttribute(nullptr, kPolicy, &seen));
  value.syncPolicy = 99;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuStreamSetAttribute(from, kPolicy, &value));
  // Which a card's driver follows.
  if (OnSoftwareGpu()) {
    EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuStreamSetAttribute(from, kPolicy, nullptr));
  }
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuStreamGetAttribute(from, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &seen));
  ASSERT_CU(Cu().cuStreamDestroy_v2(from));
  ASSERT_CU(Cu().cuStreamDestroy_v2(to));
}

}  // namespace
}  // namespace tandem::driver_test
