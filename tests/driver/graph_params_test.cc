// Parameters of nodes that are asked for and changed, in graphs and in instantiated ones, by every
// form of the calls.
#include "softgpu/ptx/module_head.h"
#include "tests/driver/graph_fixture.h"

namespace tandem::driver_test {
namespace {

class GraphParamsTest : public GraphTest {
 protected:
  static CUDA_KERNEL_NODE_PARAMS_v1 First(CUfunction function, void** arguments) {
    return {function, 1, 1, 1, 1, 1, 1, 0, arguments, nullptr};
  }
  static void Count(void* counter) { ++*static_cast<int*>(counter); }
  bool Reached(CUevent event) { return Cu().cuEventQuery(event) == CUDA_SUCCESS; }
};

TEST_F(GraphParamsTest, KernelsInTheFirstForm) {
  const CUfunction store = Kernel("store");
  uint32_t value = 1;
  void* arguments[] = {&words_, &value};
  const CUDA_KERNEL_NODE_PARAMS_v1 params = First(store, arguments);
  CUDA_KERNEL_NODE_PARAMS_v1 told = {};
  CUgraphNode node = nullptr;
  ASSERT_CU(Cu().cuGraphAddKernelNode(&node, graph_, nullptr, 0, &params));
  ASSERT_CU(Cu().cuGraphKernelNodeGetParams(node, &told));
  EXPECT_EQ(told.func, store);
  EXPECT_EQ(told.gridDimX, 1u);
  const CUgraphExec before = Instantiate(graph_);
  value = 2;
  ASSERT_CU(Cu().cuGraphKernelNodeSetParams(node, &params));
  const CUgraphExec after = Instantiate(graph_);
  Run(before);
  EXPECT_EQ(Word(), 1u);  // an instantiated graph stays as it was
  Run(after);
  EXPECT_EQ(Word(), 2u);
  value = 3;
  ASSERT_CU(Cu().cuGraphExecKernelNodeSetParams(before, node, &params));
  Run(before);
  EXPECT_EQ(Word(), 3u);
  ASSERT_CU(Cu().cuGraphExecDestroy(before));
  ASSERT_CU(Cu().cuGraphExecDestroy(after));
}

TEST_F(GraphParamsTest, Kernels) {
  const CUgraphNode node = Store(1, {});
  const CUgraphExec exec = Instantiate(graph_);
  uint32_t value = 2;
  void* arguments[] = {&words_, &value};
  const CUDA_KERNEL_NODE_PARAMS_v2 params = Params(Kernel("store"), arguments);
  ASSERT_CU(Cu().cuGraphExecKernelNodeSetParams_v2(exec, node, &params));
  Run(exec);
  EXPECT_EQ(Word(), 2u);
  ASSERT_CU(Cu().cuGraphKernelNodeSetParams_v2(node, &params));
  CUDA_KERNEL_NODE_PARAMS_v2 told = {};
  ASSERT_CU(Cu().cuGraphKernelNodeGetParams_v2(node, &told));
  EXPECT_EQ(*static_cast<uint32_t*>(told.kernelParams[1]), 2u);
  ASSERT_CU(Cu().cuGraphExecDestroy(exec));
}

TEST_F(GraphParamsTest, Copies) {
  const uint32_t first = 11, second = 22, third = 33;
  CUDA_MEMCPY3D params = Copy(&first, words_, 4), told = {};
  CUgraphNode node = nullptr;
  ASSERT_CU(Cu().cuGraphAddMemcpyNode(&node, graph_, nullptr, 0, &params, context_));
  params.srcHost = &second;
  ASSERT_CU(Cu().cuGraphMemcpyNodeSetParams(node, &params));
  ASSERT_CU(Cu().cuGraphMemcpyNodeGetParams(node, &told));
  EXPECT_EQ(told.srcHost, &second);
  const CUgraphExec exec = Instantiate(graph_);
  Run(exec);
  EXPECT_EQ(Word(), 22u);
  params.srcHost = &third;
  ASSERT_CU(Cu().cuGraphExecMemcpyNodeSetParams(exec, node, &params, context_));
  Run(exec);
  EXPECT_EQ(Word(), 33u);
  ASSERT_CU(Cu().cuGraphExecDestroy(exec));
}

// What a program is told of a captured copy it may say again, however long the row.
TEST_F(GraphParamsTest, ACopyIsLongerThanAPitchMayBe) {
  constexpr size_t kBytes = (size_t{1} << 31) + 4096;
  void* host = nullptr;
  CUdeviceptr pointer = 0;
  CUgraph captured = nullptr;
  CUgraphNode node = nullptr;
  size_t count = 1;
  if (Cu().cuMemHostAlloc(&host, kBytes, 0) != CUDA_SUCCESS) {
    GTEST_SKIP() << "the host has not so much memory";
  }
  ASSERT_CU(Cu().cuMemHostGetDevicePointer_v2(&pointer, host, 0));
  ASSERT_CU(Cu().cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_CU(Cu().cuMemcpyDtoDAsync_v2(pointer, pointer, kBytes, stream_));
  ASSERT_CU(Cu().cuStreamEndCapture(stream_, &captured));
  ASSERT_CU(Cu().cuGraphGetNodes(captured, &node, &count));
  CUDA_MEMCPY3D told = {};
  ASSERT_CU(Cu().cuGraphMemcpyNodeGetParams(node, &told));
  EXPECT_EQ(told.WidthInBytes, kBytes);
  EXPECT_CU(CUDA_SUCCESS, Cu().cuGraphMemcpyNodeSetParams(node, &told));
  const CUgraphExec exec = Instantiate(captured);  // and never launched
  EXPECT_CU(CUDA_SUCCESS, Cu().cuGraphExecMemcpyNodeSetParams(exec, node, &told, context_));
  ASSERT_CU(Cu().cuGraphExecDestroy(exec));
  ASSERT_CU(Cu().cuGraphDestroy(captured));
  ASSERT_CU(Cu().cuMemFreeHost(host));
}

TEST_F(GraphParamsTest, AKernelWhoseVariablesDoNotFitSaysSo) {
  if (Cu().cuLibraryGetKernel == nullptr) GTEST_SKIP() << "a driver before CUDA 12";
  if (!OnSoftwareGpu()) GTEST_SKIP() << "a card places variables when it likes";
  size_t total = 0;
  ASSERT_CU(Cu().cuDeviceTotalMem_v2(&total, 0));
  const std::string text = PTX_HEAD ".visible .global .align 4 .b8 table[" +
                           std::to_string(2 * total) + "];\n.visible .entry k() { ret; }\n";
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUgraphNode node = nullptr;
  ASSERT_CU(
      Cu().cuLibraryLoadData(&library, text.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  ASSERT_CU(Cu().cuLibraryGetKernel(&kernel, library, "k"));
  CUDA_KERNEL_NODE_PARAMS_v2 params = Params(nullptr, nullptr);
  params.kern = kernel;
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY,
            Cu().cuGraphAddKernelNode_v2(&node, graph_, nullptr, 0, &params));
  ASSERT_CU(Cu().cuLibraryUnload(library));
}

TEST_F(GraphParamsTest, Fills) {
  const CUgraphNode node = Memset(5, {});
  CUDA_MEMSET_NODE_PARAMS params = {};
  ASSERT_CU(Cu().cuGraphMemsetNodeGetParams(node, &params));
  EXPECT_EQ(params.value, 5u);
  params.value = 6;
  ASSERT_CU(Cu().cuGraphMemsetNodeSetParams(node, &params));
  const CUgraphExec exec = Instantiate(graph_);
  Run(exec);
  EXPECT_EQ(Word(), 6u);
  params.value = 7;
  ASSERT_CU(Cu().cuGraphExecMemsetNodeSetParams(exec, node, &params, context_));
  Run(exec);
  EXPECT_EQ(Word(), 7u);
  ASSERT_CU(Cu().cuGraphExecDestroy(exec));
}

TEST_F(GraphParamsTest, HostFunctions) {
  int first = 0, second = 0, third = 0;
  CUDA_HOST_NODE_PARAMS params = {&Count, &first}, told = {};
  CUgraphNode node = nullptr;
  ASSERT_CU(Cu().cuGraphAddHostNode(&node, graph_, nullptr, 0, &params));
  params.userData = &second;
  ASSERT_CU(Cu().cuGraphHostNodeSetParams(node, &params));
  ASSERT_CU(Cu().cuGraphHostNodeGetParams(node, &told));
  EXPECT_EQ(told.userData, &second);
  const CUgraphExec exec = Instantiate(graph_);
  Run(exec);
  params.userData = &third;
  ASSERT_CU(Cu().cuGraphExecHostNodeSetParams(exec, node, &params));
  Run(exec);
  EXPECT_EQ(first, 0);
  EXPECT_EQ(second, 1);
  EXPECT_EQ(third, 1);
  ASSERT_CU(Cu().cuGraphExecDestroy(exec));
}

// Which event a node records shows while a door keeps the stream from coming to it.
TEST_F(GraphParamsTest, RecordedEvents) {
  CUevent events[3] = {}, told = nullptr;
  for (CUevent& event : events) ASSERT_CU(Cu().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CUgraphNode node = nullptr;
  ASSERT_CU(Cu().cuGraphAddEventRecordNode(&node, graph_, nullptr, 0, events[0]));
  ASSERT_CU(Cu().cuGraphEventRecordNodeGetEvent(node, &told));
  EXPECT_EQ(told, events[0]);
  ASSERT_CU(Cu().cuGraphEventRecordNodeSetEvent(node, events[1]));
  ASSERT_CU(Cu().cuGraphEventRecordNodeGetEvent(node, &told));
  EXPECT_EQ(told, events[1]);
  const CUgraphExec exec = Instantiate(graph_);
  ASSERT_CU(Cu().cuGraphExecEventRecordNodeSetEvent(exec, node, events[2]));
  Door door;
  door.HoldIn(stream_);
  ASSERT_CU(Cu().cuGraphLaunch(exec, stream_));
  EXPECT_TRUE(Reached(events[0]));
  EXPECT_TRUE(Reached(events[1]));
  EXPECT_FALSE(Reached(events[2]));
  door.Open();
  ASSERT_CU(Cu().cuStreamSynchronize(stream_));
  EXPECT_TRUE(Reached(events[2]));
  ASSERT_CU(Cu().cuGraphExecDestroy(exec));
  for (CUevent event : events) ASSERT_CU(Cu().cuEventDestroy_v2(event));
}

TEST_F(GraphParamsTest, AwaitedEvents) {
  CUevent events[3] = {}, told = nullptr;
  for (CUevent& event : events) ASSERT_CU(Cu().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CUgraphNode node = nullptr;
  ASSERT_CU(Cu().cuGraphAddEventWaitNode(&node, graph_, nullptr, 0, events[0]));
  ASSERT_CU(Cu().cuGraphEventWaitNodeGetEvent(node, &told));
  EXPECT_EQ(told, events[0]);
  ASSERT_CU(Cu().cuGraphEventWaitNodeSetEvent(node, events[1]));
  ASSERT_CU(Cu().cuGraphEventWaitNodeGetEvent(node, &told));
  EXPECT_EQ(told, events[1]);
  const CUgraphExec exec = Instantiate(graph_);
  ASSERT_CU(Cu().cuGraphExecEventWaitNodeSetEvent(exec, node, events[2]));
  CUstream held = nullptr;
  ASSERT_CU(Cu().cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
  Door door;
  door.HoldIn(held);
  ASSERT_CU(Cu().cuEventRecord(events[2], held));
  ASSERT_CU(Cu().cuGraphLaunch(exec, stream_));
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuStreamQuery(stream_));
  door.Open();
  ASSERT_CU(Cu().cuStreamSynchronize(stream_));
  ASSERT_CU(Cu().cuStreamDestroy_v2(held));
  ASSERT_CU(Cu().cuGraphExecDestroy(exec));
  for (CUevent event : events) ASSERT_CU(Cu().cuEventDestroy_v2(event));
}

TEST_F(GraphParamsTest, Children) {
  CUgraph child = nullptr, other = nullptr, larger = nullptr;
  for (CUgraph* graph : {&child, &other, &larger}) ASSERT_CU(Cu().cuGraphCreate(graph, 0));
  Add(1, {}, child);
  Add(10, {}, other);
  Add(100, {Add(100, {}, larger)}, larger);
  CUgraphNode node = nullptr;
  ASSERT_CU(Cu().cuGraphAddChildGraphNode(&node, graph_, nullptr, 0, child));
  const CUgraphExec exec = Instantiate(graph_);
  Run(exec);
  EXPECT_EQ(Word(), 1u);
  ASSERT_CU(Cu().cuGraphExecChildGraphNodeSetParams(exec, node, other));
  Run(exec);
  EXPECT_EQ(Word(), 11u);
  EXPECT_NE(Cu().cuGraphExecChildGraphNodeSetParams(exec, node, larger), CUDA_SUCCESS);
  Run(exec);
  EXPECT_EQ(Word(), 21u);
  ASSERT_CU(Cu().cuGraphExecDestroy(exec));
  for (CUgraph graph : {child, other, larger}) ASSERT_CU(Cu().cuGraphDestroy(graph));
}

TEST_F(GraphParamsTest, EdgesWithData) {
  if (Cu().cuGraphGetEdges_v2 == nullptr) GTEST_SKIP() << "a driver from before 12.3";
  const CUgraphNode first = Empty({}), second = Empty({});
  CUgraphEdgeData plain = {}, told = {};
  told.type = 99;
  CUgraphNode from = nullptr, to = nullptr;
  size_t count = 0;
  ASSERT_CU(Cu().cuGraphAddDependencies_v2(graph_, &first, &second, &plain, 1));
  ASSERT_CU(Cu().cuGraphGetEdges_v2(graph_, nullptr, nullptr, nullptr, &count));
  ASSERT_EQ(count, 1u);
  ASSERT_CU(Cu().cuGraphGetEdges_v2(graph_, &from, &to, &told, &count));
  EXPECT_EQ(from, first);
  EXPECT_EQ(to, second);
  EXPECT_EQ(told.type, 0);
  told.type = 99;
  ASSERT_CU(Cu().cuGraphNodeGetDependencies_v2(second, &from, &told, &count));
  EXPECT_EQ(from, first);
  EXPECT_EQ(told.type, 0);
  told.type = 99;
  ASSERT_CU(Cu().cuGraphNodeGetDependentNodes_v2(first, &to, &told, &count));
  EXPECT_EQ(to, second);
  EXPECT_EQ(told.type, 0);
  ASSERT_CU(Cu().cuGraphRemoveDependencies_v2(graph_, &first, &second, &plain, 1));
  ASSERT_CU(Cu().cuGraphGetEdges_v2(graph_, nullptr, nullptr, nullptr, &count));
  EXPECT_EQ(count, 0u);
}

}  // namespace
}  // namespace tandem::driver_test
