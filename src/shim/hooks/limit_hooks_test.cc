// What a context's limits take is counted for its program.
#include <map>

#include "src/cuda/driver_api.h"
#include "src/shim/testing/hooks_fixture.h"

namespace tandem::shim {
namespace {

constexpr int kMultiprocessors = 4, kThreads = 1024;  // 4 KiB for each byte of stack

class LimitHooksTest : public HooksTest {
 protected:
  static inline std::map<CUlimit, size_t> limits;
  static inline CUresult answer = CUDA_SUCCESS;

  LimitHooksTest() {
    answer = CUDA_SUCCESS;
    limits = {{CU_LIMIT_STACK_SIZE, 1024},
              {CU_LIMIT_PRINTF_FIFO_SIZE, MiB(1).count},
              {CU_LIMIT_MALLOC_HEAP_SIZE, MiB(8).count},
              {CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0}};
    real_.cuCtxGetLimit = [](size_t* value, CUlimit limit) {
      *value = limits.at(limit);
      return CUDA_SUCCESS;
    };
    // As drivers do it with stacks: up to a multiple of 16.
    real_.cuCtxSetLimit = [](CUlimit limit, size_t value) {
      if (answer == CUDA_SUCCESS) limits.at(limit) = (value + 15) / 16 * 16;
      return answer;
    };
    real_.cuDeviceGetAttribute = [](int* value, CUdevice_attribute attribute, CUdevice) {
      *value = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT             ? kMultiprocessors
               : attribute == CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR ? kThreads
                                                                                 : 1;
      return CUDA_SUCCESS;
    };
  }
};

TEST_F(LimitHooksTest, AStackIsThereForEveryThreadOfTheCard) {
  EXPECT_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048), CUDA_SUCCESS);
  daemon_.AwaitFixed(MiB(4));  // the initial stack is part of the context
  EXPECT_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 9 * 1024), CUDA_SUCCESS);
  daemon_.AwaitFixed(MiB(32));
  EXPECT_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024), CUDA_SUCCESS);
  daemon_.AwaitFixed(Bytes());
}

TEST_F(LimitHooksTest, NoMoreCountsThanTheDaemonHasGranted) {
  EXPECT_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1025), CUDA_SUCCESS);
  daemon_.AwaitFixed(KiB(4));  // the byte that was asked for, of the 16 that it became
  EXPECT_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1041), CUDA_SUCCESS);
  daemon_.AwaitFixed(KiB(8));
  EXPECT_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 16), CUDA_SUCCESS);
  daemon_.AwaitFixed(Bytes());
}

TEST_F(LimitHooksTest, MoreThanThereIsRoomForIsOutOfMemory) {
  EXPECT_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 64 * 1024), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, ~size_t{0}), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(limits[CU_LIMIT_STACK_SIZE], 1024u);
  daemon_.AwaitFixed(Bytes());
}

TEST_F(LimitHooksTest, WhatTheDriverRefusesDoesNotCount) {
  answer = CUDA_ERROR_INVALID_VALUE;
  EXPECT_EQ(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048), CUDA_ERROR_INVALID_VALUE);
  daemon_.AwaitFixed(Bytes());
}

TEST_F(LimitHooksTest, OthersCountOnceOrNotAtAll) {
  EXPECT_EQ(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, MiB(18).count), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, MiB(4).count), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSetLimit(CU_LIMIT_PERSISTING_L2_CACHE_SIZE, MiB(30).count), CUDA_SUCCESS);
  daemon_.AwaitFixed(MiB(13));
  guest_->fixed().GiveBack(guest_->fixed().TakeAll(driver_.context()));  // as when it ends
  daemon_.AwaitFixed(Bytes());
}

}  // namespace
}  // namespace tandem::shim
