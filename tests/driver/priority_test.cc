// Streams with priorities.
#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

// await(flag): ends when *flag is not 0.
constexpr char kAwait[] = R"ptx(
.version 6.3
.target sm_50
.address_size 64

.visible .entry await(.param .u64 flag)
{
  .reg .pred %p<2>;
  .reg .b32 %r<2>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [flag];
  cvta.to.global.u64 %rd2, %rd1;
LOOP:
  ld.volatile.global.u32 %r1, [%rd2];
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra LOOP;
  ret;
}
)ptx";

using PriorityTest = DriverTest;

TEST_F(PriorityTest, AKernelThatRunsDoesNotHoldAMoreUrgentOneUp) {
  int least = 0, greatest = 0;
  CUmodule module = nullptr;
  CUfunction await = nullptr;
  CUstream low = nullptr, high = nullptr;
  uint32_t one = 1;
  ASSERT_CU(Cu().cuCtxGetStreamPriorityRange(&least, &greatest));
  if (least == greatest) GTEST_SKIP() << "the device has no stream priorities";
  ASSERT_CU(Cu().cuModuleLoadData(&module, kAwait));
  ASSERT_CU(Cu().cuModuleGetFunction(&await, module, "await"));
  ASSERT_CU(Cu().cuStreamCreateWithPriority(&low, CU_STREAM_NON_BLOCKING, least));
  ASSERT_CU(Cu().cuStreamCreateWithPriority(&high, CU_STREAM_NON_BLOCKING, greatest));
  CUdeviceptr flag = Allocate(4);
  CUfunction store = Kernel("store");
  ASSERT_CU(Cu().cuMemsetD32_v2(flag, 0, 1));
  ASSERT_CU(Cu().cuCtxSynchronize());
  ASSERT_CU(Launch(await, 1, 1, low, {&flag}));
  ASSERT_CU(Launch(store, 1, 1, high, {&flag, &one}));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamSynchronize(high));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamSynchronize(low));
}

TEST_F(PriorityTest, APriorityOutsideTheRangeIsTheNearestInside) {
  int least = 0, greatest = 0, priority = 0;
  CUstream stream = nullptr;
  ASSERT_CU(Cu().cuCtxGetStreamPriorityRange(&least, &greatest));
  ASSERT_CU(Cu().cuStreamCreateWithPriority(&stream, CU_STREAM_DEFAULT, greatest - 7));
  ASSERT_CU(Cu().cuStreamGetPriority(stream, &priority));
  EXPECT_EQ(priority, greatest);
  ASSERT_CU(Cu().cuStreamDestroy_v2(stream));
  ASSERT_CU(Cu().cuStreamCreateWithPriority(&stream, CU_STREAM_DEFAULT, least + 7));
  ASSERT_CU(Cu().cuStreamGetPriority(stream, &priority));
  EXPECT_EQ(priority, least);
  ASSERT_CU(Cu().cuStreamDestroy_v2(stream));
}

}  // namespace
}  // namespace tandem::driver_test
