// Graphs: nodes of any type by one call, attributes of kernel nodes, and the drawing of a graph.
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <iterator>

#include "tests/driver/graph_fixture.h"

namespace tandem::driver_test {
namespace {

class AnyNodeTest : public GraphTest {
 protected:
  void SetUp() override {
    GraphTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (Cu().cuGraphAddNode == nullptr) GTEST_SKIP() << "a driver before CUDA 12.2";
  }
  CUgraphNode Any(CUgraphNodeParams params, std::vector<CUgraphNode> before) {
    CUgraphNode node = nullptr;
    EXPECT_CU(CUDA_SUCCESS,
              Cu().cuGraphAddNode(&node, graph_, before.data(), before.size(), &params));
    return node;
  }
  CUgraphNodeParams FillParams(uint32_t value, size_t word) {
    CUgraphNodeParams params = {};
    params.type = CU_GRAPH_NODE_TYPE_MEMSET;
    params.memset = {words_ + 4 * word, 0, value, 4, 1, 1, context_};
    return params;
  }
};

TEST_F(AnyNodeTest, NodesOfAnyTypeAreAdded) {
  CUgraphNodeParams kernel = {}, copy = {}, host = {}, child = {}, empty = {};
  uint32_t value = 30;
  void* arguments[] = {&words_, &value};
  kernel.type = CU_GRAPH_NODE_TYPE_KERNEL;
  kernel.kernel = Params(Kernel("store"), arguments);
  copy.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  copy.memcpy.copyCtx = context_;
  copy.memcpy.copyParams = Copy(nullptr, words_ + 4, 4);
  copy.memcpy.copyParams.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.memcpy.copyParams.srcDevice = words_;
  std::atomic<int> calls = 0;
  host.type = CU_GRAPH_NODE_TYPE_HOST;
  host.host.fn = [](void* data) { ++*static_cast<std::atomic<int>*>(data); };
  host.host.userData = &calls;
  CUgraph inner = nullptr;
  ASSERT_CU(Cu().cuGraphCreate(&inner, 0));
  Add(1, {}, inner);
  child.type = CU_GRAPH_NODE_TYPE_GRAPH;
  child.graph.graph = inner;
  empty.type = CU_GRAPH_NODE_TYPE_EMPTY;
  const CUgraphNode stored = Any(kernel, {});
  const CUgraphNode copied = Any(copy, {stored});
  const CUgraphNode called = Any(host, {copied});
  const CUgraphNode added = Any(child, {called});
  const CUgraphNode filled = Any(FillParams(9, 2), {Any(empty, {added})});
  const CUgraphExec exec = Instantiate(graph_);
  Run(exec);
  EXPECT_EQ(Word(0), 31u);
  EXPECT_EQ(Word(1), 30u);
  EXPECT_EQ(Word(2), 9u);
  EXPECT_EQ(calls.load(), 1);
  // In the graph and in the instantiated one they change in one way, too.
  CUgraphNodeParams fill = FillParams(10, 2);
  ASSERT_CU(Cu().cuGraphExecNodeSetParams(exec, filled, &fill));
  Run(exec);
  EXPECT_EQ(Word(2), 10u);
  fill = FillParams(11, 2);
  ASSERT_CU(Cu().cuGraphNodeSetParams(filled, &fill));
  Run(Instantiate(graph_));
  EXPECT_EQ(Word(2), 11u);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuGraphNodeSetParams(stored, &fill));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuGraphNodeSetParams(stored, nullptr));
}

TEST_F(AnyNodeTest, EdgesCarryOrderAndReservedWordsAreZero) {
  if (Cu().cuGraphAddNode_v2 == nullptr) GTEST_SKIP() << "a driver before CUDA 12.3";
  CUgraphNodeParams params = FillParams(1, 0);
  CUgraphNode first = nullptr, second = nullptr;
  const CUgraphEdgeData edge = {};
  ASSERT_CU(Cu().cuGraphAddNode_v2(&first, graph_, nullptr, nullptr, 0, &params));
  ASSERT_CU(Cu().cuGraphAddNode_v2(&second, graph_, &first, &edge, 1, &params));
  CUgraphNode before = nullptr;
  size_t count = 1;
  ASSERT_CU(Cu().cuGraphNodeGetDependencies(second, &before, &count));
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(before, first);
  params.reserved2 = 1;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuGraphAddNode_v2(&second, graph_, &first, &edge, 1, &params));
  params = {};
  params.type = static_cast<CUgraphNodeType>(77);
  EXPECT_NE(Cu().cuGraphAddNode_v2(&second, graph_, &first, &edge, 1, &params), CUDA_SUCCESS);
}

TEST_F(GraphTest, KernelNodesHaveAttributes) {
  if (Cu().cuGraphKernelNodeGetAttribute == nullptr) GTEST_SKIP() << "a driver before CUDA 11";
  const CUgraphNode from = Store(1, {}), to = Store(2, {from}), fill = Memset(3, {}, 1);
  CUlaunchAttributeValue value = {}, seen = {};
  value.cooperative = 1;
  ASSERT_CU(Cu().cuGraphKernelNodeSetAttribute(from, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
  value = {};
  int least = 0, greatest = 0;
  ASSERT_CU(Cu().cuCtxGetStreamPriorityRange(&least, &greatest));
  value.priority = greatest;
  ASSERT_CU(Cu().cuGraphKernelNodeSetAttribute(from, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
  ASSERT_CU(Cu().cuGraphKernelNodeGetAttribute(to, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &seen));
  EXPECT_EQ(seen.cooperative, 0);
  ASSERT_CU(Cu().cuGraphKernelNodeCopyAttributes(to, from));
  ASSERT_CU(Cu().cuGraphKernelNodeGetAttribute(to, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &seen));
  EXPECT_EQ(seen.cooperative, 1);
  ASSERT_CU(Cu().cuGraphKernelNodeGetAttribute(to, CU_LAUNCH_ATTRIBUTE_PRIORITY, &seen));
  EXPECT_EQ(seen.priority, greatest);
  EXPECT_NE(Cu().cuGraphKernelNodeGetAttribute(fill, CU_LAUNCH_ATTRIBUTE_PRIORITY, &seen),
            CUDA_SUCCESS);
  EXPECT_NE(
      Cu().cuGraphKernelNodeSetAttribute(to, CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT, &value),
      CUDA_SUCCESS);
  Run(Instantiate(graph_));
  EXPECT_EQ(Word(), 2u);
}

TEST_F(GraphTest, IsDrawnAsItIs) {
  if (Cu().cuGraphDebugDotPrint == nullptr) GTEST_SKIP() << "a driver before CUDA 11.3";
  const CUgraphNode first = Memset(3, {});
  Store(1, {first});
  const std::string path = testing::TempDir() + "/tandem_dot_" + std::to_string(getpid());
  for (const unsigned int flags : {0u, CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE}) {
    ASSERT_CU(Cu().cuGraphDebugDotPrint(graph_, path.c_str(), flags));
    std::ifstream file(path);
    const std::string text((std::istreambuf_iterator<char>(file)),
                           std::istreambuf_iterator<char>());
    EXPECT_EQ(text.find("digraph"), 0u);
    EXPECT_NE(text.find("->"), std::string::npos);
    EXPECT_NE(text.find("store"), std::string::npos);
  }
  remove(path.c_str());
  EXPECT_NE(Cu().cuGraphDebugDotPrint(graph_, "/no/such/directory/file", 0), CUDA_SUCCESS);
  EXPECT_NE(Cu().cuGraphDebugDotPrint(graph_, nullptr, 0), CUDA_SUCCESS);
}

}  // namespace
}  // namespace tandem::driver_test
