// What is refused, and how: graphs, their nodes, instantiated graphs.
#include "tests/driver/errors.h"

namespace tandem::driver_test {
namespace {

const Answers kEventHandle = {CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE};

// A graph of one node of each common kind, and another graph with one node.
class ErrorsGraphTest : public ErrorsTest {
 protected:
  void SetUp() override {
    ErrorsTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    block_ = Allocate(64);
    fill_ = {block_, 0, 7, 4, 4, 1};
    copy_.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy_.srcHost = host_;
    copy_.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy_.dstDevice = block_;
    copy_.WidthInBytes = 16;
    copy_.Height = copy_.Depth = 1;
    kernel_.func = Kernel("bump");
    kernel_.gridDimX = kernel_.gridDimY = kernel_.gridDimZ = 1;
    kernel_.blockDimX = kernel_.blockDimY = kernel_.blockDimZ = 1;
    ASSERT_CU(Cu().cuGraphCreate(&graph_, 0));
    ASSERT_CU(Cu().cuGraphCreate(&other_, 0));
    ASSERT_CU(Cu().cuGraphAddEmptyNode(&empty_, graph_, nullptr, 0));
    ASSERT_CU(Cu().cuGraphAddMemsetNode(&fill_node_, graph_, nullptr, 0, &fill_, context_));
    ASSERT_CU(Cu().cuGraphAddEmptyNode(&foreign_, other_, nullptr, 0));
  }
  void TearDown() override {
    if (graph_ != nullptr) TAKES(cuGraphDestroy, graph_);
    if (other_ != nullptr) TAKES(cuGraphDestroy, other_);
    ErrorsTest::TearDown();
  }

  CUdeviceptr block_ = 0;
  char host_[64] = {};
  CUDA_MEMSET_NODE_PARAMS fill_ = {};
  CUDA_MEMCPY3D copy_ = {};
  CUDA_HOST_NODE_PARAMS call_ = {[](void*) {}, nullptr};
  CUDA_KERNEL_NODE_PARAMS_v2 kernel_ = {};
  CUgraph graph_ = nullptr, other_ = nullptr;
  CUgraphNode empty_ = nullptr, fill_node_ = nullptr, foreign_ = nullptr;
};

TEST_F(ErrorsGraphTest, Graphs) {
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  REFUSES(kValue, cuGraphCreate, nullptr, 0);
  REFUSES(kValue, cuGraphCreate, &graph, 1);
  REFUSES(kValueOrHandle, cuGraphDestroy, nullptr);
  REFUSES(kValue, cuGraphClone, nullptr, graph_);
  REFUSES(kValueOrHandle, cuGraphClone, &graph, nullptr);
  REFUSES(kValueOrHandle, cuGraphDestroyNode, nullptr);
  TAKES(cuGraphClone, &graph, graph_);
  REFUSES(kValue, cuGraphNodeFindInClone, nullptr, empty_, graph);
  REFUSES(kValueOrHandle, cuGraphNodeFindInClone, &node, empty_, nullptr);
  REFUSES(kValue, cuGraphNodeFindInClone, &node, foreign_, graph);
  TAKES(cuGraphDestroy, graph);
}

TEST_F(ErrorsGraphTest, Shape) {
  size_t count = 0;
  CUgraphNodeType type = {};
  REFUSES(kValue, cuGraphGetNodes, graph_, nullptr, nullptr);
  REFUSES(kValueOrHandle, cuGraphGetNodes, nullptr, nullptr, &count);
  REFUSES(kValue, cuGraphGetRootNodes, graph_, nullptr, nullptr);
  REFUSES(kValueOrHandle, cuGraphGetRootNodes, nullptr, nullptr, &count);
  REFUSES(kValue, cuGraphGetEdges, graph_, nullptr, nullptr, nullptr);
  REFUSES(kValueOrHandle, cuGraphGetEdges, nullptr, nullptr, nullptr, &count);
  REFUSES(kValue, cuGraphGetEdges_v2, graph_, nullptr, nullptr, nullptr, nullptr);
  REFUSES(kValueOrHandle, cuGraphGetEdges_v2, nullptr, nullptr, nullptr, nullptr, &count);
  REFUSES(kValue, cuGraphNodeGetType, empty_, nullptr);
  REFUSES(kValueOrHandle, cuGraphNodeGetType, nullptr, &type);
  REFUSES(kValue, cuGraphNodeGetDependencies, empty_, nullptr, nullptr);
  REFUSES(kValueOrHandle, cuGraphNodeGetDependencies, nullptr, nullptr, &count);
  REFUSES(kValue, cuGraphNodeGetDependencies_v2, empty_, nullptr, nullptr, nullptr);
  REFUSES(kValueOrHandle, cuGraphNodeGetDependencies_v2, nullptr, nullptr, nullptr, &count);
  REFUSES(kValue, cuGraphNodeGetDependentNodes, empty_, nullptr, nullptr);
  REFUSES(kValueOrHandle, cuGraphNodeGetDependentNodes, nullptr, nullptr, &count);
  REFUSES(kValue, cuGraphNodeGetDependentNodes_v2, empty_, nullptr, nullptr, nullptr);
  REFUSES(kValueOrHandle, cuGraphNodeGetDependentNodes_v2, nullptr, nullptr, nullptr, &count);
}

TEST_F(ErrorsGraphTest, Edges) {
  CUgraphEdgeData odd = {};
  odd.type = 77;
  REFUSES(kValueOrHandle, cuGraphAddDependencies, nullptr, &empty_, &fill_node_, 1);
  REFUSES(kValue, cuGraphAddDependencies, graph_, nullptr, &fill_node_, 1);
  REFUSES(kValue, cuGraphAddDependencies, graph_, &empty_, nullptr, 1);
  REFUSES(kValue, cuGraphAddDependencies, graph_, &empty_, &empty_, 1);  // to itself
  REFUSES(kValue, cuGraphAddDependencies, graph_, &empty_, &foreign_, 1);
  REFUSES(kValue, cuGraphRemoveDependencies, graph_, &empty_, &fill_node_, 1);  // there is none
  REFUSES(kValue, cuGraphAddDependencies_v2, graph_, &empty_, &empty_, nullptr, 1);
  REFUSES(kValue, cuGraphAddDependencies_v2, graph_, &empty_, &fill_node_, &odd, 1);
  REFUSES(kValue, cuGraphRemoveDependencies_v2, graph_, &empty_, &fill_node_, nullptr, 1);
  REFUSES(kValueOrHandle, cuGraphRemoveDependencies_v2, nullptr, &empty_, &fill_node_, nullptr, 1);
  REFUSES(kValueOrHandle, cuGraphRemoveDependencies, nullptr, &empty_, &fill_node_, 1);
  TAKES(cuGraphAddDependencies, graph_, &empty_, &fill_node_, 1);
  REFUSES(kValue, cuGraphAddDependencies, graph_, &empty_, &fill_node_, 1);  // there is one
}

TEST_F(ErrorsGraphTest, AddingNodes) {
  CUgraphNode node = nullptr;
  REFUSES(kValue, cuGraphAddEmptyNode, nullptr, graph_, nullptr, 0);
  REFUSES(kValueOrHandle, cuGraphAddEmptyNode, &node, nullptr, nullptr, 0);
  REFUSES(kValue, cuGraphAddEmptyNode, &node, graph_, nullptr, 1);
  REFUSES(kValue, cuGraphAddEmptyNode, &node, graph_, &foreign_, 1);
  REFUSES(kValue, cuGraphAddMemsetNode, nullptr, graph_, nullptr, 0, &fill_, context_);
  REFUSES(kValue, cuGraphAddMemsetNode, &node, graph_, nullptr, 0, nullptr, context_);
  REFUSES(kValueOrHandle, cuGraphAddMemsetNode, &node, nullptr, nullptr, 0, &fill_, context_);
  REFUSES(kValue, cuGraphAddMemcpyNode, nullptr, graph_, nullptr, 0, &copy_, context_);
  REFUSES(kValue, cuGraphAddMemcpyNode, &node, graph_, nullptr, 0, nullptr, context_);
  REFUSES(kValueOrHandle, cuGraphAddMemcpyNode, &node, nullptr, nullptr, 0, &copy_, context_);
  REFUSES(kValue, cuGraphAddHostNode, nullptr, graph_, nullptr, 0, &call_);
  REFUSES(kValue, cuGraphAddHostNode, &node, graph_, nullptr, 0, nullptr);
  REFUSES(kValueOrHandle, cuGraphAddHostNode, &node, nullptr, nullptr, 0, &call_);
  REFUSES(kValue, cuGraphAddKernelNode_v2, nullptr, graph_, nullptr, 0, &kernel_);
  REFUSES(kValue, cuGraphAddKernelNode_v2, &node, graph_, nullptr, 0, nullptr);
  REFUSES(kValueOrHandle, cuGraphAddKernelNode_v2, &node, nullptr, nullptr, 0, &kernel_);
  REFUSES(kValue, cuGraphAddKernelNode, &node, graph_, nullptr, 0, nullptr);
  CUevent event = nullptr;
  TAKES(cuEventCreate, &event, CU_EVENT_DEFAULT);
  REFUSES(kValue, cuGraphAddEventRecordNode, nullptr, graph_, nullptr, 0, event);
  REFUSES(kValue, cuGraphAddEventWaitNode, nullptr, graph_, nullptr, 0, event);
  TAKES(cuEventDestroy_v2, event);
  REFUSES(kEventHandle, cuGraphAddEventRecordNode, &node, graph_, nullptr, 0, nullptr);
  REFUSES(kEventHandle, cuGraphAddEventWaitNode, &node, graph_, nullptr, 0, nullptr);
  REFUSES(kValueOrHandle, cuGraphAddChildGraphNode, &node, graph_, nullptr, 0, nullptr);
  REFUSES(kValue, cuGraphAddChildGraphNode, nullptr, graph_, nullptr, 0, other_);
  REFUSES(kValueOrHandle, cuGraphAddMemFreeNode, &node, graph_, nullptr, 0, 0x10);
  REFUSES(kValue, cuGraphAddMemAllocNode, &node, graph_, nullptr, 0, nullptr);
  EXPECT_EQ(node, nullptr);
}

TEST_F(ErrorsGraphTest, ParametersOfFills) {
  std::vector<CUDA_MEMSET_NODE_PARAMS> wrong(5, fill_);
  wrong[0].elementSize = 3;
  wrong[1].dst = block_ + 1;
  wrong[2].dst = 0;
  wrong[3].height = 4;  // with no pitch
  wrong[4].width = kAbsurd;
  for (const CUDA_MEMSET_NODE_PARAMS& params : wrong) {
    SCOPED_TRACE("case " + std::to_string(&params - wrong.data()));
    CUgraphNode node = nullptr;
    REFUSES(kValue, cuGraphAddMemsetNode, &node, graph_, nullptr, 0, &params, context_);
    REFUSES(kValue, cuGraphMemsetNodeSetParams, fill_node_, &params);
  }
}

TEST_F(ErrorsGraphTest, ParametersOfCopies) {
  std::vector<CUDA_MEMCPY3D> wrong(4, copy_);
  wrong[0].srcMemoryType = NoSuch<CUmemorytype>();
  wrong[1].dstDevice = 0;
  wrong[2].WidthInBytes = kAbsurd;
  wrong[3].dstMemoryType = static_cast<CUmemorytype>(0);
  CUgraphNode good = nullptr;
  TAKES(cuGraphAddMemcpyNode, &good, graph_, nullptr, 0, &copy_, context_);
  for (const CUDA_MEMCPY3D& params : wrong) {
    SCOPED_TRACE("case " + std::to_string(&params - wrong.data()));
    CUgraphNode node = nullptr;
    REFUSES(kValue, cuGraphAddMemcpyNode, &node, graph_, nullptr, 0, &params, context_);
    REFUSES(kValue, cuGraphMemcpyNodeSetParams, good, &params);
  }
}

TEST_F(ErrorsGraphTest, ParametersOfKernels) {
  std::vector<CUDA_KERNEL_NODE_PARAMS_v2> wrong(4, kernel_);
  wrong[0].func = nullptr;
  wrong[1].gridDimX = 0;
  wrong[2].blockDimZ = 4096;
  wrong[3].sharedMemBytes = 1 << 30;
  CUgraphNode good = nullptr;
  TAKES(cuGraphAddKernelNode_v2, &good, graph_, nullptr, 0, &kernel_);
  const Answers refused = {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_HANDLE};
  for (const CUDA_KERNEL_NODE_PARAMS_v2& params : wrong) {
    SCOPED_TRACE("case " + std::to_string(&params - wrong.data()));
    CUgraphNode node = nullptr;
    const auto* old = reinterpret_cast<const CUDA_KERNEL_NODE_PARAMS_v1*>(&params);
    REFUSES(refused, cuGraphAddKernelNode_v2, &node, graph_, nullptr, 0, &params);
    REFUSES(refused, cuGraphAddKernelNode, &node, graph_, nullptr, 0, old);
    REFUSES(refused, cuGraphKernelNodeSetParams_v2, good, &params);
    REFUSES(refused, cuGraphKernelNodeSetParams, good, old);
  }
}

// Each kind of node has calls of its own, and they take no other.
TEST_F(ErrorsGraphTest, NodesOfOtherKinds) {
  CUDA_KERNEL_NODE_PARAMS_v1 kernel_v1 = {};
  CUDA_KERNEL_NODE_PARAMS_v2 kernel = kernel_;
  CUDA_MEM_ALLOC_NODE_PARAMS alloc = {};
  CUevent event = nullptr;
  CUgraph child = nullptr;
  CUdeviceptr pointer = 0;
  TAKES(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
  for (CUgraphNode node : {empty_, static_cast<CUgraphNode>(nullptr)}) {
    REFUSES(kValueOrHandle, cuGraphKernelNodeGetParams, node, &kernel_v1);
    REFUSES(kValueOrHandle, cuGraphKernelNodeGetParams_v2, node, &kernel);
    REFUSES(kValueOrHandle, cuGraphKernelNodeSetParams_v2, node, &kernel_);
    REFUSES(kValueOrHandle, cuGraphMemcpyNodeGetParams, node, &copy_);
    REFUSES(kValueOrHandle, cuGraphMemcpyNodeSetParams, node, &copy_);
    REFUSES(kValueOrHandle, cuGraphMemsetNodeGetParams, node, &fill_);
    REFUSES(kValueOrHandle, cuGraphMemsetNodeSetParams, node, &fill_);
    REFUSES(kValueOrHandle, cuGraphHostNodeGetParams, node, &call_);
    REFUSES(kValueOrHandle, cuGraphHostNodeSetParams, node, &call_);
    REFUSES(kValueOrHandle, cuGraphEventRecordNodeGetEvent, node, &event);
    REFUSES(kValueOrHandle, cuGraphEventRecordNodeSetEvent, node, event);
    REFUSES(kValueOrHandle, cuGraphEventWaitNodeGetEvent, node, &event);
    REFUSES(kValueOrHandle, cuGraphEventWaitNodeSetEvent, node, event);
    REFUSES(kValueOrHandle, cuGraphChildGraphNodeGetGraph, node, &child);
    REFUSES(kValueOrHandle, cuGraphMemAllocNodeGetParams, node, &alloc);
    REFUSES(kValueOrHandle, cuGraphMemFreeNodeGetParams, node, &pointer);
  }
  REFUSES(kValue, cuGraphMemsetNodeGetParams, fill_node_, nullptr);
  REFUSES(kValue, cuGraphMemsetNodeSetParams, fill_node_, nullptr);
  TAKES(cuEventDestroy_v2, event);
}

TEST_F(ErrorsGraphTest, NodesOfAnyKind) {
  CUgraphNode node = nullptr;
  CUgraphNodeParams good = {}, none = {}, reserved = {};
  good.type = CU_GRAPH_NODE_TYPE_MEMSET;
  good.memset = {block_, 0, 7, 4, 4, 1, context_};
  reserved = good;
  reserved.reserved2 = 1;
  none.type = NoSuch<CUgraphNodeType>();
  CUgraphExec exec = nullptr;
  TAKES(cuGraphInstantiateWithFlags, &exec, graph_, 0);
  const Answers refused = {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED};
  REFUSES(kValue, cuGraphAddNode, nullptr, graph_, nullptr, 0, &good);
  REFUSES(kValueOrHandle, cuGraphAddNode, &node, nullptr, nullptr, 0, &good);
  REFUSES(kValue, cuGraphAddNode, &node, graph_, nullptr, 0, nullptr);
  REFUSES(kValue, cuGraphAddNode, &node, graph_, &foreign_, 1, &good);
  REFUSES(refused, cuGraphAddNode, &node, graph_, nullptr, 0, &none);
  REFUSES(kValue, cuGraphAddNode, &node, graph_, nullptr, 0, &reserved);
  REFUSES(kValue, cuGraphAddNode_v2, nullptr, graph_, nullptr, nullptr, 0, &good);
  REFUSES(kValueOrHandle, cuGraphAddNode_v2, &node, nullptr, nullptr, nullptr, 0, &good);
  REFUSES(kValue, cuGraphAddNode_v2, &node, graph_, nullptr, nullptr, 0, nullptr);
  REFUSES(kValue, cuGraphAddNode_v2, &node, graph_, nullptr, nullptr, 1, &good);
  REFUSES(kValueOrHandle, cuGraphNodeSetParams, nullptr, &good);
  REFUSES(kValue, cuGraphNodeSetParams, fill_node_, nullptr);
  REFUSES(kValue, cuGraphNodeSetParams, empty_, &good);
  REFUSES(kValueOrHandle, cuGraphExecNodeSetParams, nullptr, fill_node_, &good);
  REFUSES(kValue, cuGraphExecNodeSetParams, exec, fill_node_, nullptr);
  REFUSES(kValue, cuGraphExecNodeSetParams, exec, foreign_, &good);
  EXPECT_EQ(node, nullptr);
  TAKES(cuGraphExecDestroy, exec);
}

TEST_F(ErrorsGraphTest, AttributesAndPictures) {
  CUgraphNode node = nullptr;
  CUlaunchAttributeValue value = {};
  constexpr auto kCooperative = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  const auto no_such = NoSuch<CUlaunchAttributeID>();
  TAKES(cuGraphAddKernelNode_v2, &node, graph_, nullptr, 0, &kernel_);
  for (CUgraphNode other : {empty_, static_cast<CUgraphNode>(nullptr)}) {
    REFUSES(kNullHandle, cuGraphKernelNodeGetAttribute, other, kCooperative, &value);
    REFUSES(kNullHandle, cuGraphKernelNodeSetAttribute, other, kCooperative, &value);
    REFUSES(kValueOrHandle, cuGraphKernelNodeCopyAttributes, node, other);
    REFUSES(kValueOrHandle, cuGraphKernelNodeCopyAttributes, other, node);
  }
  REFUSES(kValue, cuGraphKernelNodeGetAttribute, node, kCooperative, nullptr);
  REFUSES(kValue, cuGraphKernelNodeGetAttribute, node, no_such, &value);
  REFUSES(kValue, cuGraphKernelNodeSetAttribute, node, kCooperative, nullptr);
  REFUSES(kValue, cuGraphKernelNodeSetAttribute, node, no_such, &value);
  const Answers no_file = {CUDA_ERROR_OPERATING_SYSTEM, CUDA_ERROR_INVALID_VALUE};
  REFUSES(kValueOrHandle, cuGraphDebugDotPrint, nullptr, "/nonexistent/tandem.dot", 0);
  REFUSES(kValue, cuGraphDebugDotPrint, graph_, nullptr, 0);
  REFUSES(no_file, cuGraphDebugDotPrint, graph_, "/nonexistent/tandem.dot", 0);
}

TEST_F(ErrorsGraphTest, Instantiating) {
  CUgraphExec exec = nullptr;
  CUDA_GRAPH_INSTANTIATE_PARAMS params = {};
  params.flags = 1 << 20;
  REFUSES(kValue, cuGraphInstantiate, nullptr, graph_, nullptr, nullptr, 0);
  REFUSES(kValueOrHandle, cuGraphInstantiate, &exec, nullptr, nullptr, nullptr, 0);
  REFUSES(kValue, cuGraphInstantiate_v2, nullptr, graph_, nullptr, nullptr, 0);
  REFUSES(kValueOrHandle, cuGraphInstantiate_v2, &exec, nullptr, nullptr, nullptr, 0);
  REFUSES(kValue, cuGraphInstantiateWithFlags, nullptr, graph_, 0);
  REFUSES(kValueOrHandle, cuGraphInstantiateWithFlags, &exec, nullptr, 0);
  REFUSES(kValue, cuGraphInstantiateWithFlags, &exec, graph_, 1 << 20);
  REFUSES(kValue, cuGraphInstantiateWithParams, &exec, graph_, nullptr);
  REFUSES(kValue, cuGraphInstantiateWithParams, &exec, graph_, &params);
  EXPECT_EQ(exec, nullptr);
}

TEST_F(ErrorsGraphTest, NoInstantiatedGraph) {
  CUstream stream = nullptr;
  cuuint64_t flags = 0;
  unsigned int enabled = 0;
  CUgraphExecUpdateResult outcome = {};
  CUgraphExecUpdateResultInfo info = {};
  CUgraphNode node = nullptr;
  CUevent event = nullptr;
  TAKES(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
  const auto* old = reinterpret_cast<const CUDA_KERNEL_NODE_PARAMS_v1*>(&kernel_);
  REFUSES(kValueOrHandle, cuGraphExecDestroy, nullptr);
  REFUSES(kValueOrHandle, cuGraphLaunch, nullptr, stream);
  REFUSES(kValueOrHandle, cuGraphUpload, nullptr, stream);
  REFUSES(kValueOrHandle, cuGraphExecGetFlags, nullptr, &flags);
  REFUSES(kValueOrHandle, cuGraphNodeSetEnabled, nullptr, fill_node_, 1);
  REFUSES(kValueOrHandle, cuGraphNodeGetEnabled, nullptr, fill_node_, &enabled);
  REFUSES(kValueOrHandle, cuGraphExecUpdate, nullptr, graph_, &node, &outcome);
  REFUSES(kValueOrHandle, cuGraphExecUpdate_v2, nullptr, graph_, &info);
  REFUSES(kValueOrHandle, cuGraphExecKernelNodeSetParams, nullptr, empty_, old);
  REFUSES(kValueOrHandle, cuGraphExecKernelNodeSetParams_v2, nullptr, empty_, &kernel_);
  REFUSES(kValueOrHandle, cuGraphExecMemcpyNodeSetParams, nullptr, empty_, &copy_, context_);
  REFUSES(kValueOrHandle, cuGraphExecMemsetNodeSetParams, nullptr, fill_node_, &fill_, context_);
  REFUSES(kValueOrHandle, cuGraphExecHostNodeSetParams, nullptr, empty_, &call_);
  REFUSES(kValueOrHandle, cuGraphExecEventRecordNodeSetEvent, nullptr, empty_, event);
  REFUSES(kValueOrHandle, cuGraphExecEventWaitNodeSetEvent, nullptr, empty_, event);
  REFUSES(kValueOrHandle, cuGraphExecChildGraphNodeSetParams, nullptr, empty_, other_);
  TAKES(cuEventDestroy_v2, event);
}

TEST_F(ErrorsGraphTest, InstantiatedGraphs) {
  CUgraphExec exec = nullptr;
  unsigned int enabled = 0;
  CUgraphExecUpdateResultInfo info = {};
  CUgraphExecUpdateResult outcome = {};
  CUgraphNode node = nullptr;
  CUevent event = nullptr;
  const Answers differs = {CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE};
  TAKES(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
  TAKES(cuGraphInstantiateWithFlags, &exec, graph_, 0);
  const auto* old = reinterpret_cast<const CUDA_KERNEL_NODE_PARAMS_v1*>(&kernel_);
  REFUSES(kValue, cuGraphExecGetFlags, exec, nullptr);
  REFUSES(kValue, cuGraphNodeSetEnabled, exec, foreign_, 1);
  REFUSES(kValue, cuGraphNodeSetEnabled, exec, empty_, 0);  // not of a kind that can be
  REFUSES(kValue, cuGraphNodeGetEnabled, exec, fill_node_, nullptr);
  REFUSES(kValue, cuGraphNodeGetEnabled, exec, foreign_, &enabled);
  REFUSES(kValueOrHandle, cuGraphExecUpdate_v2, exec, nullptr, &info);
  REFUSES(differs, cuGraphExecUpdate_v2, exec, other_, &info);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  REFUSES(differs, cuGraphExecUpdate, exec, other_, &node, &outcome);
  if (OnSoftwareGpu()) {
    EXPECT_EQ(outcome, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  }
  for (CUgraphNode other : {foreign_, empty_}) {
    REFUSES(kValue, cuGraphExecKernelNodeSetParams, exec, other, old);
    REFUSES(kValue, cuGraphExecKernelNodeSetParams_v2, exec, other, &kernel_);
    REFUSES(kValue, cuGraphExecMemcpyNodeSetParams, exec, other, &copy_, context_);
    REFUSES(kValue, cuGraphExecMemsetNodeSetParams, exec, other, &fill_, context_);
    REFUSES(kValue, cuGraphExecHostNodeSetParams, exec, other, &call_);
    REFUSES(kValue, cuGraphExecEventRecordNodeSetEvent, exec, other, event);
    REFUSES(kValue, cuGraphExecEventWaitNodeSetEvent, exec, other, event);
    REFUSES(kValue, cuGraphExecChildGraphNodeSetParams, exec, other, other_);
  }
  REFUSES(kValue, cuGraphExecMemsetNodeSetParams, exec, fill_node_, nullptr, context_);
  TAKES(cuGraphExecDestroy, exec);
  TAKES(cuEventDestroy_v2, event);
}

TEST_F(ErrorsGraphTest, MemoryOfGraphs) {
  uint64_t value = 1;
  constexpr auto kUsed = CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT;
  REFUSES(kDeviceOrValue, cuDeviceGraphMemTrim, kNoDevice);
  REFUSES(kDeviceOrValue, cuDeviceGetGraphMemAttribute, kNoDevice, kUsed, &value);
  REFUSES(kValue, cuDeviceGetGraphMemAttribute, 0, NoSuch<CUgraphMem_attribute>(), &value);
  REFUSES(kValue, cuDeviceGetGraphMemAttribute, 0, kUsed, nullptr);
  REFUSES(kDeviceOrValue, cuDeviceSetGraphMemAttribute, kNoDevice, kUsed, &value);
  REFUSES(kValue, cuDeviceSetGraphMemAttribute, 0, NoSuch<CUgraphMem_attribute>(), &value);
  REFUSES(kValue, cuDeviceSetGraphMemAttribute, 0, kUsed, &value);
}

TEST_F(ErrorsGraphTest, NoCurrentContext) {
  CUgraphExec exec = nullptr;
  TAKES(cuGraphInstantiateWithFlags, &exec, graph_, 0);
  WithoutContext([&] {
    REFUSES(kContext, cuGraphLaunch, exec, nullptr);
    REFUSES(kContext, cuGraphUpload, exec, nullptr);
  });
  TAKES(cuGraphExecDestroy, exec);
}

}  // namespace
}  // namespace tandem::driver_test
