// Launches in other ways than cuLaunchKernel, and how many blocks are resident together.
#include <algorithm>
#include <cstring>
#include <string>

#include "softgpu/ptx/module_head.h"
#include "tests/driver/fixture.h"

namespace tandem::driver_test {
namespace {

// together(counter, out): every thread 0 counts itself in, waits until all blocks have, and stores
// what it then sees. grid(out): the same with the barrier word that the driver provides.
const char kTogether[] = R"(
.version 6.3
.target sm_60
.address_size 64
.visible .entry together(.param .u64 counter, .param .u64 out)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .b64 %d<4>;
  ld.param.u64 %d0, [counter];
  ld.param.u64 %d1, [out];
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %nctaid.x;
  atom.global.add.u32 %r2, [%d0], 1;
WAIT:
  ld.volatile.global.u32 %r3, [%d0];
  setp.lt.u32 %p0, %r3, %r1;
  @%p0 bra WAIT;
  mul.wide.u32 %d2, %r0, 4;
  add.s64 %d2, %d1, %d2;
  st.global.u32 [%d2], %r3;
  ret;
}
// The barrier of cooperative groups, as compilers write it: the high half of its place is in
// %envreg1, the low one in %envreg2; who comes last turns the top bit of the word at 4 round.
.visible .entry grid(.param .u64 counter, .param .u64 out)
{
  .reg .pred %p<2>;
  .reg .b32 %r<10>;
  .reg .b64 %d<4>;
  ld.param.u64 %d0, [counter];
  ld.param.u64 %d1, [out];
  mov.u32 %r4, %envreg2;
  mov.u32 %r5, %envreg1;
  mov.b64 %d3, {%r4, %r5};
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %nctaid.x;
  red.global.add.u32 [%d0], 1;
  membar.gl;
  setp.eq.u32 %p0, %r0, 0;
  sub.u32 %r6, 0x80000001, %r1;
  selp.u32 %r6, %r6, 1, %p0;
  atom.add.u32 %r7, [%d3+4], %r6;
WAIT:
  ld.volatile.u32 %r8, [%d3+4];
  xor.b32 %r8, %r8, %r7;
  setp.ge.s32 %p1, %r8, 0;
  @%p1 bra WAIT;
  membar.gl;
  ld.volatile.global.u32 %r3, [%d0];
  mul.wide.u32 %d2, %r0, 4;
  add.s64 %d2, %d1, %d2;
  st.global.u32 [%d2], %r3;
  ret;
}
)";

// synced(counter, out): as grid(), by the calls that libcudadevrt.a has for it.
const char kSynced[] = R"(
.version 6.0
.target sm_60
.address_size 64
.extern .func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope);
.extern .func (.param .b32 result) cudaCGSynchronize(.param .b64 handle, .param .b32 flags);
.visible .entry synced(.param .u64 counter, .param .u64 out)
{
  .reg .b32 %r<3>;
  .reg .b64 %d<5>;
  ld.param.u64 %d0, [counter];
  ld.param.u64 %d1, [out];
  mov.u32 %r0, %ctaid.x;
  red.global.add.u32 [%d0], 1;
  membar.gl;
  {
    .param .b32 scope;
    .param .b64 handle;
    st.param.b32 [scope], 1;
    call (handle), cudaCGGetIntrinsicHandle, (scope);
    ld.param.b64 %d3, [handle];
  }
  {
    .param .b64 handle;
    .param .b32 flags;
    .param .b32 result;
    st.param.b64 [handle], %d3;
    st.param.b32 [flags], 0;
    call (result), cudaCGSynchronize, (handle, flags);
  }
  ld.volatile.global.u32 %r2, [%d0];
  mul.wide.u32 %d2, %r0, 4;
  add.s64 %d2, %d1, %d2;
  st.global.u32 [%d2], %r2;
  ret;
}
)";

class LaunchExTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (Cu().cuLaunchKernelEx == nullptr ||
        Cu().cuOccupancyAvailableDynamicSMemPerBlock == nullptr) {
      GTEST_SKIP() << "a driver before CUDA 11.8";
    }
  }
  uint32_t ReadWord(CUdeviceptr pointer) {
    uint32_t word = 0;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemcpyDtoH_v2(&word, pointer, sizeof(word)));
    return word;
  }
  // As many blocks of `threads` as the device holds.
  int Resident(CUfunction function, int threads) {
    int blocks = 0, processors = 0;
    EXPECT_CU(CUDA_SUCCESS,
              Cu().cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, threads, 0));
    EXPECT_CU(CUDA_SUCCESS,
              Cu().cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    return blocks * processors;
  }
  bool SkipsCooperative() {
    int can = 0;
    EXPECT_CU(CUDA_SUCCESS,
              Cu().cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 0));
    return can == 0;
  }
};

TEST_F(LaunchExTest, ExTakesAConfigurationAndHints) {
  const CUfunction store = Kernel("store");
  CUdeviceptr out = Allocate(4);
  uint32_t value = 5;
  void* parameters[] = {&out, &value};
  CUlaunchAttribute attributes[2] = {};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_IGNORE;
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, nullptr, attributes, 2};
  ASSERT_CU(Cu().cuLaunchKernelEx(&config, store, parameters, nullptr));
  EXPECT_EQ(ReadWord(out), 5u);
  value = 6;
  ASSERT_CU(Cu().cuLaunchKernelEx_ptsz(&config, store, parameters, nullptr));
  ASSERT_CU(Cu().cuCtxSynchronize());
  EXPECT_EQ(ReadWord(out), 6u);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuLaunchKernelEx(nullptr, store, parameters, nullptr));
  config.blockDimX = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuLaunchKernelEx(&config, store, parameters, nullptr));
  config.blockDimX = 1;
  config.attrs = nullptr;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuLaunchKernelEx(&config, store, parameters, nullptr));
}

TEST_F(LaunchExTest, AWrongCompletionEventStopsTheLaunch) {
  const CUfunction store = Kernel("store");
  CUdeviceptr out = Allocate(4);
  ASSERT_CU(Cu().cuMemsetD32_v2(out, 1, 1));
  uint32_t value = 5;
  void* parameters[] = {&out, &value};
  CUevent event = nullptr;
  ASSERT_CU(Cu().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
  attribute.value.launchCompletionEvent.event = event;
  CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, nullptr, &attribute, 1};
  ASSERT_CU(Cu().cuEventDestroy_v2(event));
  if (!OnSoftwareGpu()) GTEST_SKIP() << "a card may believe the handle";
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, Cu().cuLaunchKernelEx(&config, store, parameters, nullptr));
  ASSERT_CU(Cu().cuCtxSynchronize());
  EXPECT_EQ(ReadWord(out), 1u);
}

TEST_F(LaunchExTest, ClustersNeedADeviceThatHasThem) {
  int can = 0;
  ASSERT_CU(Cu().cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 0));
  if (can != 0) GTEST_SKIP() << "the device has clusters";
  const CUfunction store = Kernel("store");
  CUdeviceptr out = Allocate(4);
  uint32_t value = 5;
  void* parameters[] = {&out, &value};
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {2, 1, 1};
  CUlaunchConfig config = {2, 1, 1, 1, 1, 1, 0, nullptr, &attribute, 1};
  const CUresult launched = Cu().cuLaunchKernelEx(&config, store, parameters, nullptr);
  EXPECT_NE(launched, CUDA_SUCCESS);
  if (OnSoftwareGpu()) EXPECT_CU(CUDA_ERROR_INVALID_CLUSTER_SIZE, launched);
  ASSERT_CU(Cu().cuCtxSynchronize());
}

TEST_F(LaunchExTest, CooperativeBlocksWaitForEachOther) {
  if (SkipsCooperative()) GTEST_SKIP() << "the device has no cooperative launches";
  CUmodule module = nullptr;
  CUfunction together = nullptr, grid = nullptr;
  ASSERT_CU(Cu().cuModuleLoadData(&module, kTogether));
  ASSERT_CU(Cu().cuModuleGetFunction(&together, module, "together"));
  ASSERT_CU(Cu().cuModuleGetFunction(&grid, module, "grid"));
  const auto blocks = static_cast<unsigned int>(Resident(together, 1));
  ASSERT_GE(blocks, 2u);
  CUdeviceptr counter = Allocate(4), out = Allocate(size_t{blocks} * 4);
  ASSERT_CU(Cu().cuMemsetD32_v2(counter, 0, 1));
  void* parameters[] = {&counter, &out};
  ASSERT_CU(
      Cu().cuLaunchCooperativeKernel(together, blocks, 1, 1, 1, 1, 1, 0, nullptr, parameters));
  ASSERT_CU(Cu().cuCtxSynchronize());
  EXPECT_EQ(ReadWord(out), blocks);
  EXPECT_EQ(ReadWord(out + size_t{blocks - 1} * 4), blocks);
  ASSERT_CU(Cu().cuMemsetD32_v2(counter, 0, 1));
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = 1;
  CUlaunchConfig config = {blocks, 1, 1, 1, 1, 1, 0, nullptr, &attribute, 1};
  for (uint32_t round = 1; round <= 3; ++round) {
    ASSERT_CU(Cu().cuLaunchKernelEx(&config, grid, parameters, nullptr));
    ASSERT_CU(Cu().cuCtxSynchronize());
    EXPECT_EQ(ReadWord(out), round * blocks);
    EXPECT_EQ(ReadWord(out + size_t{blocks - 1} * 4), round * blocks);
  }
  EXPECT_CU(
      CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
      Cu().cuLaunchCooperativeKernel(together, blocks + 1, 1, 1, 1, 1, 1, 0, nullptr, parameters));
}

TEST_F(LaunchExTest, CooperativeBlocksWaitByTheDeviceRuntime) {
  if (!OnSoftwareGpu()) GTEST_SKIP() << "a card needs the true libcudadevrt.a";
  std::string archive = "!<arch>\n//        24 `\ncuda_device_runtime.o/\n\n", text = kSynced;
  CUlinkState state = nullptr;
  void* image = nullptr;
  CUmodule module = nullptr;
  CUfunction synced = nullptr;
  ASSERT_CU(Cu().cuLinkCreate_v2(0, nullptr, nullptr, &state));
  ASSERT_CU(Cu().cuLinkAddData_v2(state, CU_JIT_INPUT_LIBRARY, archive.data(), archive.size(),
                                  "runtime", 0, nullptr, nullptr));
  ASSERT_CU(Cu().cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, text.data(), text.size() + 1, "kernel",
                                  0, nullptr, nullptr));
  ASSERT_CU(Cu().cuLinkComplete(state, &image, nullptr));
  ASSERT_CU(Cu().cuModuleLoadData(&module, image));
  ASSERT_CU(Cu().cuLinkDestroy(state));
  ASSERT_CU(Cu().cuModuleGetFunction(&synced, module, "synced"));
  CUdeviceptr counter = Allocate(4), out = Allocate(12);
  ASSERT_CU(Cu().cuMemsetD32_v2(counter, 0, 1));
  void* parameters[] = {&counter, &out};
  ASSERT_CU(Cu().cuLaunchCooperativeKernel(synced, 3, 1, 1, 1, 1, 1, 0, nullptr, parameters));
  ASSERT_CU(Cu().cuCtxSynchronize());
  for (uint64_t block = 0; block < 3; ++block) EXPECT_EQ(ReadWord(out + 4 * block), 3u);
}

// A kernel node that was captured cooperative is so with other parameters, too.
TEST_F(LaunchExTest, ACooperativeNodeStaysOneWhenItsParametersChange) {
  if (SkipsCooperative()) GTEST_SKIP() << "the device has no cooperative launches";
  if (Cu().cuGraphKernelNodeSetParams_v2 == nullptr) GTEST_SKIP() << "a driver before CUDA 12";
  CUmodule module = nullptr;
  CUfunction together = nullptr;
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  size_t count = 1;
  ASSERT_CU(Cu().cuModuleLoadData(&module, kTogether));
  ASSERT_CU(Cu().cuModuleGetFunction(&together, module, "together"));
  ASSERT_CU(Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr counters = Allocate(12), out = Allocate(8);
  ASSERT_CU(Cu().cuMemsetD32_v2(counters, 0, 3));
  ASSERT_CU(Cu().cuCtxSynchronize());
  void* parameters[] = {&counters, &out};
  ASSERT_CU(Cu().cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_CU(Cu().cuLaunchCooperativeKernel(together, 2, 1, 1, 1, 1, 1, 0, stream, parameters));
  ASSERT_CU(Cu().cuStreamEndCapture(stream, &graph));
  ASSERT_CU(Cu().cuGraphGetNodes(graph, &node, &count));
  CUDA_KERNEL_NODE_PARAMS_v2 params = {};
  ASSERT_CU(Cu().cuGraphKernelNodeGetParams_v2(node, &params));
  CUdeviceptr counter = counters + 4;
  void* changed[] = {&counter, &out};
  params.kernelParams = changed;
  ASSERT_CU(Cu().cuGraphKernelNodeSetParams_v2(node, &params));
  ASSERT_CU(Cu().cuGraphInstantiateWithFlags(&exec, graph, 0));
  ASSERT_CU(Cu().cuGraphLaunch(exec, stream));  // would wait for ever if its blocks took no turns
  ASSERT_CU(Cu().cuStreamSynchronize(stream));
  EXPECT_EQ(ReadWord(counters), 0u);
  EXPECT_EQ(ReadWord(counters + 4), 2u);
  counter = counters + 8;
  ASSERT_CU(Cu().cuGraphExecKernelNodeSetParams_v2(exec, node, &params));
  ASSERT_CU(Cu().cuGraphLaunch(exec, stream));
  ASSERT_CU(Cu().cuStreamSynchronize(stream));
  EXPECT_EQ(ReadWord(counters + 8), 2u);
  // More blocks than fit together are refused, as at a launch.
  params.gridDimX = static_cast<unsigned int>(Resident(together, 1)) + 1;
  EXPECT_NE(Cu().cuGraphExecKernelNodeSetParams_v2(exec, node, &params), CUDA_SUCCESS);
}

TEST_F(LaunchExTest, TheOldWayOfLaunching) {
  const CUfunction store = Kernel("store");
  CUdeviceptr out = Allocate(4);
  ASSERT_CU(Cu().cuFuncSetBlockShape(store, 1, 1, 1));
  ASSERT_CU(Cu().cuFuncSetSharedSize(store, 0));
  ASSERT_CU(Cu().cuParamSetv(store, 0, &out, sizeof(out)));
  ASSERT_CU(Cu().cuParamSeti(store, 8, 31));
  ASSERT_CU(Cu().cuParamSetSize(store, 12));
  ASSERT_CU(Cu().cuLaunch(store));
  EXPECT_EQ(ReadWord(out), 31u);
  ASSERT_CU(Cu().cuParamSetf(store, 8, 1.0f));
  ASSERT_CU(Cu().cuLaunchGrid(store, 2, 2));
  EXPECT_EQ(ReadWord(out), 0x3f800000u);
  CUstream stream = nullptr;
  ASSERT_CU(Cu().cuStreamCreate(&stream, 0));
  ASSERT_CU(Cu().cuParamSeti(store, 8, 32));
  ASSERT_CU(Cu().cuLaunchGridAsync(store, 1, 1, stream));
  ASSERT_CU(Cu().cuStreamSynchronize(stream));
  EXPECT_EQ(ReadWord(out), 32u);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuFuncSetBlockShape(store, 0, 1, 1));
  if (OnSoftwareGpu()) {  // a card's driver follows what it is told
    EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuParamSetv(store, 0, nullptr, 4));
    EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuParamSeti(store, -4, 1));
  }
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuLaunchGrid(store, 0, 1));
  ASSERT_CU(Cu().cuStreamDestroy_v2(stream));
}

TEST_F(LaunchExTest, WhatABlockTakesAnywayLeavesNoLessThanNothing) {
  int all = 0, reserved = 0;
  ASSERT_CU(
      Cu().cuDeviceGetAttribute(&all, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 0));
  ASSERT_CU(Cu().cuDeviceGetAttribute(&reserved,
                                      CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 0));
  for (int share = 3; share < 16; ++share) {
    // The most static shared memory with which `share` blocks fit, to the word.
    const int fixed = std::min((all / share - reserved) / 4 * 4, 48 << 10);
    const std::string text =
        PTX_HEAD
        ".visible .entry k() {\n"
        "  .shared .align 4 .b8 buffer[" +
        std::to_string(fixed) +
        "];\n  .reg .b32 %r;\n  mov.u32 %r, 1;\n  st.shared.u32 [buffer], %r;\n  ret;\n}\n";
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    int blocks = 0;
    size_t bytes = 0;
    ASSERT_CU(Cu().cuModuleLoadData(&module, text.c_str()));
    ASSERT_CU(Cu().cuModuleGetFunction(&function, module, "k"));
    ASSERT_CU(Cu().cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 32, 0));
    ASSERT_GE(blocks, 1);
    ASSERT_CU(Cu().cuOccupancyAvailableDynamicSMemPerBlock(&bytes, function, blocks, 32));
    // A card (H200, CUDA 13.0) leaves out here what it reserves for each block.
    const size_t kept = OnSoftwareGpu() ? static_cast<size_t>(reserved) : 0;
    const size_t each = bytes + static_cast<size_t>(fixed) + kept;
    EXPECT_LE(static_cast<size_t>(blocks) * each, static_cast<size_t>(all)) << share;
    ASSERT_CU(Cu().cuModuleUnload(module));
  }
}

TEST_F(LaunchExTest, Occupancy) {
  const CUfunction store = Kernel("store");
  int blocks = 0, fewer = 0, grid = 0, block = 0, threads = 0;
  ASSERT_CU(Cu().cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, store, 128, 0));
  EXPECT_GE(blocks, 1);
  ASSERT_CU(
      Cu().cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&fewer, store, 128, 40 << 10, 0));
  EXPECT_LT(fewer, blocks);
  ASSERT_CU(Cu().cuOccupancyMaxPotentialBlockSize(&grid, &block, store, nullptr, 0, 0));
  ASSERT_CU(Cu().cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, store));
  EXPECT_GE(grid, 1);
  EXPECT_GE(block, 1);
  EXPECT_LE(block, threads);
  ASSERT_CU(Cu().cuOccupancyMaxPotentialBlockSizeWithFlags(
      &grid, &block, store, [](int size) { return static_cast<size_t>(size) * 8; }, 0, 100, 0));
  EXPECT_GE(block, 1);
  EXPECT_LE(block, 100);
  size_t shared = 0;
  ASSERT_CU(Cu().cuOccupancyAvailableDynamicSMemPerBlock(&shared, store, 2, 64));
  ASSERT_CU(Cu().cuFuncSetAttribute(store, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                    static_cast<int>(shared)));
  ASSERT_CU(Cu().cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, store, 64, shared));
  EXPECT_GE(blocks, 2);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuOccupancyMaxActiveBlocksPerMultiprocessor(nullptr, store, 128, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, store, 0, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuOccupancyMaxPotentialBlockSize(nullptr, &block, store, nullptr, 0, 0));
}

}  // namespace
}  // namespace tandem::driver_test
