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

// meet(flag, out): block 0 counts itself in the barrier word that the driver provides; block 1
// waits for that and for *flag, for a while, and stores the word. urge(flag): counts there too, and
// sets *flag.
constexpr char kMeet[] = R"ptx(
.version 6.3
.target sm_60
.address_size 64

.visible .entry meet(.param .u64 flag, .param .u64 out)
{
  .reg .pred %p<3>;
  .reg .b32 %r<8>;
  .reg .b64 %d<4>;
  ld.param.u64 %d1, [flag];
  ld.param.u64 %d2, [out];
  mov.u32 %r0, %envreg2;
  mov.u32 %r1, %envreg1;
  mov.b64 %d0, {%r0, %r1};
  mov.u32 %r2, %ctaid.x;
  setp.ne.u32 %p0, %r2, 0;
  @%p0 bra OTHER;
  atom.add.u32 %r3, [%d0+4], 1;
  ret;
OTHER:
  mov.u32 %r4, 0;
WAIT:
  ld.volatile.u32 %r3, [%d0+4];
  ld.volatile.global.u32 %r5, [%d1];
  min.u32 %r6, %r3, %r5;
  add.u32 %r4, %r4, 1;
  setp.ge.u32 %p1, %r4, 100000000;
  @%p1 bra DONE;
  setp.eq.u32 %p2, %r6, 0;
  @%p2 bra WAIT;
DONE:
  st.global.u32 [%d2], %r3;
  st.global.u32 [%d2+4], %r5;
  ret;
}
.visible .entry urge(.param .u64 flag)
{
  .reg .b32 %r<4>;
  .reg .b64 %d<2>;
  ld.param.u64 %d1, [flag];
  mov.u32 %r0, %envreg2;
  mov.u32 %r1, %envreg1;
  mov.b64 %d0, {%r0, %r1};
  atom.add.u32 %r3, [%d0+4], 10;
  membar.sys;
  st.volatile.global.u32 [%d1], 1;
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

TEST_F(PriorityTest, CooperativeKernelsThatInterruptEachOtherHaveBarriersOfTheirOwn) {
  int least = 0, greatest = 0, can = 0;
  CUmodule module = nullptr;
  CUfunction meet = nullptr, urge = nullptr;
  CUstream low = nullptr, high = nullptr;
  ASSERT_CU(Cu().cuCtxGetStreamPriorityRange(&least, &greatest));
  ASSERT_CU(Cu().cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 0));
  if (least == greatest || can == 0) GTEST_SKIP() << "no priorities or no cooperative launches";
  ASSERT_CU(Cu().cuModuleLoadData(&module, kMeet));
  ASSERT_CU(Cu().cuModuleGetFunction(&meet, module, "meet"));
  ASSERT_CU(Cu().cuModuleGetFunction(&urge, module, "urge"));
  ASSERT_CU(Cu().cuStreamCreateWithPriority(&low, CU_STREAM_NON_BLOCKING, least));
  ASSERT_CU(Cu().cuStreamCreateWithPriority(&high, CU_STREAM_NON_BLOCKING, greatest));
  CUdeviceptr flag = Allocate(4), out = Allocate(8);
  ASSERT_CU(Cu().cuMemsetD32_v2(flag, 0, 1));
  ASSERT_CU(Cu().cuCtxSynchronize());
  void* both[] = {&flag, &out};
  void* one[] = {&flag};
  ASSERT_CU(Cu().cuLaunchCooperativeKernel(meet, 2, 1, 1, 1, 1, 1, 0, low, both));
  ASSERT_CU(Cu().cuLaunchCooperativeKernel(urge, 1, 1, 1, 1, 1, 1, 0, high, one));
  ASSERT_CU(Cu().cuCtxSynchronize());
  uint32_t seen[2] = {};
  ASSERT_CU(Cu().cuMemcpyDtoH_v2(seen, out, sizeof(seen)));
  if (seen[1] == 0) GTEST_SKIP() << "the device ran one after the other";
  EXPECT_EQ(seen[0] & 0xff, 1u);
}

TEST_F(PriorityTest, AGraphMayGoByThePrioritiesOfItsNodes) {
  if (Cu().cuGraphKernelNodeSetAttribute == nullptr) GTEST_SKIP() << "a driver before CUDA 11";
  int least = 0, greatest = 0;
  CUmodule module = nullptr;
  CUfunction await = nullptr;
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraphNode waits = nullptr, sets = nullptr;
  CUgraphExec exec = nullptr;
  uint32_t one = 1;
  ASSERT_CU(Cu().cuCtxGetStreamPriorityRange(&least, &greatest));
  if (least == greatest) GTEST_SKIP() << "the device has no stream priorities";
  ASSERT_CU(Cu().cuModuleLoadData(&module, kAwait));
  ASSERT_CU(Cu().cuModuleGetFunction(&await, module, "await"));
  ASSERT_CU(Cu().cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, least));
  CUdeviceptr flag = Allocate(4);
  ASSERT_CU(Cu().cuMemsetD32_v2(flag, 0, 1));
  ASSERT_CU(Cu().cuCtxSynchronize());
  ASSERT_CU(Cu().cuGraphCreate(&graph, 0));
  CUDA_KERNEL_NODE_PARAMS_v2 params = {};
  params.gridDimX = params.gridDimY = params.gridDimZ = 1;
  params.blockDimX = params.blockDimY = params.blockDimZ = 1;
  void* flag_only[] = {&flag};
  void* flag_and_one[] = {&flag, &one};
  params.func = await;
  params.kernelParams = flag_only;
  ASSERT_CU(Cu().cuGraphAddKernelNode_v2(&waits, graph, nullptr, 0, &params));
  params.func = Kernel("store");
  params.kernelParams = flag_and_one;
  ASSERT_CU(Cu().cuGraphAddKernelNode_v2(&sets, graph, nullptr, 0, &params));
  CUlaunchAttributeValue value = {};
  value.priority = greatest;
  ASSERT_CU(Cu().cuGraphKernelNodeSetAttribute(sets, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
  ASSERT_CU(Cu().cuGraphInstantiateWithFlags(&exec, graph,
                                             CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
  ASSERT_CU(Cu().cuGraphLaunch(exec, stream));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamSynchronize(stream));
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
