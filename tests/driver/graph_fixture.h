// GraphTest: a graph to put nodes into, a stream to launch it in and sixteen words, zero at first,
// for the nodes to write to.
#pragma once

#include "tests/driver/fixture.h"

namespace tandem::driver_test {

class GraphTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (Cu().cuGraphAddKernelNode_v2 == nullptr || Cu().cuGraphInstantiateWithFlags == nullptr) {
      GTEST_SKIP() << "a driver before CUDA 12";
    }
    ASSERT_CU(Cu().cuGraphCreate(&graph_, 0));
    ASSERT_CU(Cu().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    words_ = Allocate(64);
    ASSERT_CU(Cu().cuMemsetD8_v2(words_, 0, 64));
    ASSERT_CU(Cu().cuCtxSynchronize());
  }

  CUgraphNode Store(uint32_t value, std::vector<CUgraphNode> before, size_t word = 0) {
    CUdeviceptr to = words_ + 4 * word;
    void* arguments[] = {&to, &value};
    CUDA_KERNEL_NODE_PARAMS_v2 params = Params(Kernel("store"), arguments);
    CUgraphNode node = nullptr;
    EXPECT_CU(CUDA_SUCCESS,
              Cu().cuGraphAddKernelNode_v2(&node, graph_, before.data(), before.size(), &params));
    return node;
  }
  CUgraphNode Add(uint32_t value, std::vector<CUgraphNode> before, CUgraph graph) {
    uint32_t count = 1;
    void* arguments[] = {&words_, &value, &count};
    CUDA_KERNEL_NODE_PARAMS_v2 params = Params(Kernel("add"), arguments);
    CUgraphNode node = nullptr;
    EXPECT_CU(CUDA_SUCCESS,
              Cu().cuGraphAddKernelNode_v2(&node, graph, before.data(), before.size(), &params));
    return node;
  }
  static CUDA_KERNEL_NODE_PARAMS_v2 Params(CUfunction function, void** arguments) {
    CUDA_KERNEL_NODE_PARAMS_v2 params = {};
    params.func = function;
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = arguments;
    return params;
  }
  CUgraphNode Memset(uint32_t value, std::vector<CUgraphNode> before, size_t word = 0) {
    const CUDA_MEMSET_NODE_PARAMS params = {words_ + 4 * word, 0, value, 4, 1, 1};
    CUgraphNode node = nullptr;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuGraphAddMemsetNode(&node, graph_, before.data(), before.size(),
                                                      &params, context_));
    return node;
  }
  CUgraphNode Empty(std::vector<CUgraphNode> before) {
    CUgraphNode node = nullptr;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuGraphAddEmptyNode(&node, graph_, before.data(), before.size()));
    return node;
  }
  CUgraphExec Instantiate(CUgraph graph) {
    CUgraphExec exec = nullptr;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
  }
  uint32_t Word(size_t word = 0) {
    uint32_t value = 0;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuMemcpyDtoH_v2(&value, words_ + 4 * word, 4));
    return value;
  }
  void Run(CUgraphExec exec) {
    ASSERT_CU(Cu().cuGraphLaunch(exec, stream_));
    ASSERT_CU(Cu().cuStreamSynchronize(stream_));
  }
  CUDA_MEMCPY3D Copy(const void* from, CUdeviceptr to, size_t bytes) {
    CUDA_MEMCPY3D copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = from;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = to;
    copy.WidthInBytes = bytes;
    copy.Height = copy.Depth = 1;
    return copy;
  }

  CUgraph graph_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr words_ = 0;
};

}  // namespace tandem::driver_test
