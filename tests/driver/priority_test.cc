// Streams with priorities.
#include <chrono>
#include <thread>

#include "softgpu/ptx/module_head.h"
#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

// await(flag, began): sets began[0], waits for *flag, for a while, and stores it to began[1].
constexpr char kAwait[] = PTX_HEAD R"ptx(

.visible .entry await(.param .u64 flag, .param .u64 began)
{
  .reg .pred %p<3>;
  .reg .b32 %r<4>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [flag];
  ld.param.u64 %rd2, [began];
  cvta.to.global.u64 %rd1, %rd1;
  cvta.to.global.u64 %rd2, %rd2;
  st.volatile.global.u32 [%rd2], 1;
  membar.sys;
  mov.u32 %r2, 0;
LOOP:
  ld.volatile.global.u32 %r1, [%rd1];
  add.u32 %r2, %r2, 1;
  setp.ge.u32 %p1, %r2, 100000000;
  @%p1 bra DONE;
  setp.eq.u32 %p2, %r1, 0;
  @%p2 bra LOOP;
DONE:
  st.volatile.global.u32 [%rd2+4], %r1;
  ret;
}
)ptx";

// meet(flag, began): block 0 counts itself in the barrier word that the driver provides, and sets
// began[0]; block 1 waits for that and for *flag, for a while, and stores flag and word to began[1]
// and began[2]. urge(flag): counts there too, and sets *flag. They leave the word changed.
constexpr char kMeet[] = R"ptx(
.version 6.3
.target sm_60
.address_size 64

.visible .entry meet(.param .u64 flag, .param .u64 began)
{
  .reg .pred %p<3>;
  .reg .b32 %r<8>;
  .reg .b64 %d<4>;
  ld.param.u64 %d1, [flag];
  ld.param.u64 %d2, [began];
  mov.u32 %r0, %envreg2;
  mov.u32 %r1, %envreg1;
  mov.b64 %d0, {%r0, %r1};
  mov.u32 %r2, %ctaid.x;
  setp.ne.u32 %p0, %r2, 0;
  @%p0 bra OTHER;
  atom.add.u32 %r3, [%d0+4], 1;
  st.volatile.global.u32 [%d2], 1;
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
  st.global.u32 [%d2+4], %r5;
  st.global.u32 [%d2+8], %r3;
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

class PriorityTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_CU(Cu().cuCtxGetStreamPriorityRange(&least_, &greatest_));
    if (least_ == greatest_) GTEST_SKIP() << "the device has no stream priorities";
    void* host = nullptr;
    ASSERT_CU(Cu().cuMemHostAlloc(&host, 64, CU_MEMHOSTALLOC_DEVICEMAP));
    began_ = static_cast<volatile uint32_t*>(host);
    for (int i = 0; i < 3; ++i) began_[i] = 0;
    ASSERT_CU(Cu().cuMemHostGetDevicePointer_v2(&began_there_, host, 0));
    ASSERT_CU(Cu().cuStreamCreateWithPriority(&low_, CU_STREAM_NON_BLOCKING, least_));
    ASSERT_CU(Cu().cuStreamCreateWithPriority(&high_, CU_STREAM_NON_BLOCKING, greatest_));
    flag_ = Allocate(4);
    ASSERT_CU(Cu().cuMemsetD32_v2(flag_, 0, 1));
    ASSERT_CU(Cu().cuCtxSynchronize());
  }
  // The thread sanitizer knows no memory that a device writes to while the host looks on.
  [[gnu::no_sanitize("thread"), gnu::noinline]] static uint32_t Look(volatile uint32_t* word) {
    return *word;
  }
  // Until the kernel runs that is to be interrupted; it ends by itself after a while.
  static void AwaitBegin(volatile uint32_t* began) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    while (Look(began) == 0 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    EXPECT_EQ(Look(began), 1u) << "the kernel has not begun";
  }

  int least_ = 0, greatest_ = 0;
  CUstream low_ = nullptr, high_ = nullptr;
  CUdeviceptr flag_ = 0, began_there_ = 0;
  volatile uint32_t* began_ = nullptr;  // what the low kernel says: that it runs, what it saw
};

TEST_F(PriorityTest, AKernelThatRunsDoesNotHoldAMoreUrgentOneUp) {
  CUmodule module = nullptr;
  CUfunction await = nullptr;
  uint32_t one = 1;
  ASSERT_CU(Cu().cuModuleLoadData(&module, kAwait));
  ASSERT_CU(Cu().cuModuleGetFunction(&await, module, "await"));
  const CUfunction store = Kernel("store");
  ASSERT_CU(Launch(await, 1, 1, low_, {&flag_, &began_there_}));
  AwaitBegin(began_);
  ASSERT_CU(Launch(store, 1, 1, high_, {&flag_, &one}));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamSynchronize(high_));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamSynchronize(low_));
  EXPECT_EQ(began_[1], 1u) << "the urgent kernel came too late";
}

TEST_F(PriorityTest, CooperativeKernelsThatInterruptEachOtherHaveBarriersOfTheirOwn) {
  if (!OnSoftwareGpu()) GTEST_SKIP() << "a card's barrier is not to be left as these leave it";
  CUmodule module = nullptr;
  CUfunction meet = nullptr, urge = nullptr;
  ASSERT_CU(Cu().cuModuleLoadData(&module, kMeet));
  ASSERT_CU(Cu().cuModuleGetFunction(&meet, module, "meet"));
  ASSERT_CU(Cu().cuModuleGetFunction(&urge, module, "urge"));
  void* both[] = {&flag_, &began_there_};
  void* one[] = {&flag_};
  ASSERT_CU(Cu().cuLaunchCooperativeKernel(meet, 2, 1, 1, 1, 1, 1, 0, low_, both));
  AwaitBegin(began_);
  ASSERT_CU(Cu().cuLaunchCooperativeKernel(urge, 1, 1, 1, 1, 1, 1, 0, high_, one));
  ASSERT_CU(Cu().cuCtxSynchronize());
  EXPECT_EQ(began_[1], 1u) << "the urgent kernel came too late";
  EXPECT_EQ(began_[2] & 0xff, 1u);
}

TEST_F(PriorityTest, AGraphMayGoByThePrioritiesOfItsNodes) {
  if (Cu().cuGraphKernelNodeSetAttribute == nullptr || Cu().cuGraphAddKernelNode_v2 == nullptr) {
    GTEST_SKIP() << "a driver before CUDA 12";
  }
  CUmodule module = nullptr;
  CUfunction await = nullptr;
  CUgraph graph = nullptr;
  CUgraphNode waits = nullptr, begun = nullptr, sets = nullptr;
  CUgraphExec exec = nullptr;
  uint32_t one = 1;
  ASSERT_CU(Cu().cuModuleLoadData(&module, kAwait));
  ASSERT_CU(Cu().cuModuleGetFunction(&await, module, "await"));
  ASSERT_CU(Cu().cuGraphCreate(&graph, 0));
  CUDA_KERNEL_NODE_PARAMS_v2 params = {};
  params.gridDimX = params.gridDimY = params.gridDimZ = 1;
  params.blockDimX = params.blockDimY = params.blockDimZ = 1;
  void* flag_and_began[] = {&flag_, &began_there_};
  void* flag_and_one[] = {&flag_, &one};
  params.func = await;
  params.kernelParams = flag_and_began;
  ASSERT_CU(Cu().cuGraphAddKernelNode_v2(&waits, graph, nullptr, 0, &params));
  const auto wait = [](void* began) { AwaitBegin(static_cast<volatile uint32_t*>(began)); };
  const CUDA_HOST_NODE_PARAMS host = {wait, const_cast<uint32_t*>(began_)};
  ASSERT_CU(Cu().cuGraphAddHostNode(&begun, graph, nullptr, 0, &host));
  params.func = Kernel("store");
  params.kernelParams = flag_and_one;
  ASSERT_CU(Cu().cuGraphAddKernelNode_v2(&sets, graph, &begun, 1, &params));
  CUlaunchAttributeValue value = {};
  value.priority = greatest_;
  ASSERT_CU(Cu().cuGraphKernelNodeSetAttribute(sets, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
  ASSERT_CU(Cu().cuGraphInstantiateWithFlags(&exec, graph,
                                             CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
  ASSERT_CU(Cu().cuGraphLaunch(exec, low_));
  EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamSynchronize(low_));
  EXPECT_EQ(began_[1], 1u) << "the urgent kernel came too late";
}

TEST_F(PriorityTest, APriorityOutsideTheRangeIsTheNearestInside) {
  int priority = 0;
  CUstream stream = nullptr;
  ASSERT_CU(Cu().cuStreamCreateWithPriority(&stream, CU_STREAM_DEFAULT, greatest_ - 7));
  ASSERT_CU(Cu().cuStreamGetPriority(stream, &priority));
  EXPECT_EQ(priority, greatest_);
  ASSERT_CU(Cu().cuStreamDestroy_v2(stream));
  ASSERT_CU(Cu().cuStreamCreateWithPriority(&stream, CU_STREAM_DEFAULT, least_ + 7));
  ASSERT_CU(Cu().cuStreamGetPriority(stream, &priority));
  EXPECT_EQ(priority, least_);
  ASSERT_CU(Cu().cuStreamDestroy_v2(stream));
}

}  // namespace
}  // namespace tandem::driver_test
