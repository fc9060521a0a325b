// Updates of whole graphs: an instantiated graph takes the parameters of another graph of the same
// shape, or, where it cannot, says why and stays as it was.
#include "tests/driver/graph_fixture.h"

namespace tandem::driver_test {
namespace {

class GraphUpdateTest : public GraphTest {
 protected:
  void NewGraph() { ASSERT_CU(Cu().cuGraphCreate(&graph_, 0)); }

  CUgraphNode CopyIn(const void* from, size_t word, std::vector<CUgraphNode> before) {
    const CUDA_MEMCPY3D copy = Copy(from, words_ + 4 * word, 4);
    CUgraphNode node = nullptr;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuGraphAddMemcpyNode(&node, graph_, before.data(), before.size(),
                                                      &copy, context_));
    return node;
  }
  // A refusal in either form, for the reason given and because of `node`.
  void ExpectRefused(CUgraphExec exec, CUgraphExecUpdateResult expected, CUgraphNode node) {
    CUgraphExecUpdateResultInfo info = {CU_GRAPH_EXEC_UPDATE_SUCCESS, nullptr, nullptr};
    EXPECT_CU(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, Cu().cuGraphExecUpdate_v2(exec, graph_, &info));
    EXPECT_EQ(info.result, expected);
    EXPECT_EQ(info.errorNode, node);
    CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    CUgraphNode error_node = nullptr;
    EXPECT_CU(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
              Cu().cuGraphExecUpdate(exec, graph_, &error_node, &result));
    EXPECT_EQ(result, expected);
    EXPECT_EQ(error_node, node);
  }
};

TEST_F(GraphUpdateTest, ACopyKeepsItsDirectionAndAFillItsRows) {
  constexpr auto kParameters = CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
  uint32_t value = 5;
  const CUgraphNode before = CopyIn(&value, 0, {});
  CUDA_MEMSET_NODE_PARAMS rows = {words_ + 4, 8, 6, 4, 1, 2};
  CUgraphNode node = nullptr;
  ASSERT_CU(Cu().cuGraphAddMemsetNode(&node, graph_, &before, 1, &rows, context_));
  const CUgraphExec exec = Instantiate(graph_);
  NewGraph();
  CUDA_MEMCPY3D back = Copy(nullptr, words_, 4);
  std::swap(back.srcMemoryType, back.dstMemoryType);
  back.srcDevice = words_;
  back.dstHost = &value;
  CUgraphNode copy = nullptr;
  ASSERT_CU(Cu().cuGraphAddMemcpyNode(&copy, graph_, nullptr, 0, &back, context_));
  ASSERT_CU(Cu().cuGraphAddMemsetNode(&node, graph_, &copy, 1, &rows, context_));
  ExpectRefused(exec, kParameters, copy);
  for (const size_t height : {1, 3}) {
    NewGraph();
    copy = CopyIn(&value, 0, {});
    rows.height = height;
    ASSERT_CU(Cu().cuGraphAddMemsetNode(&node, graph_, &copy, 1, &rows, context_));
    ExpectRefused(exec, kParameters, node);
  }
  Run(exec);
  const std::vector<uint32_t> expected = {5, 6, 0, 6, 0};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(Word(i), expected[i]) << "word " << i;
}

TEST_F(GraphUpdateTest, AttributesOfKernelsStay) {
  constexpr auto kAttributes = CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
  int least = 0, greatest = 0;
  ASSERT_CU(Cu().cuCtxGetStreamPriorityRange(&least, &greatest));
  if (least == greatest) GTEST_SKIP() << "the device has no priorities";
  Store(1, {});
  CUgraphExec by_priority = nullptr;
  const CUgraphExec exec = Instantiate(graph_);
  ASSERT_CU(Cu().cuGraphInstantiateWithFlags(&by_priority, graph_,
                                             CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
  NewGraph();
  CUgraphNode node = Store(2, {});
  CUlaunchAttributeValue value = {};
  value.priority = greatest;
  ASSERT_CU(Cu().cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
  ExpectRefused(by_priority, kAttributes, node);
  CUgraphExecUpdateResultInfo info = {CU_GRAPH_EXEC_UPDATE_ERROR, nullptr, nullptr};
  EXPECT_CU(CUDA_SUCCESS, Cu().cuGraphExecUpdate_v2(exec, graph_, &info));  // nobody asks for it
  Run(exec);
  EXPECT_EQ(Word(), 2u);
  Run(by_priority);
  EXPECT_EQ(Word(), 1u);
  int can = 0;
  ASSERT_CU(Cu().cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 0));
  if (can == 0) GTEST_SKIP() << "the device has no cooperative launches";
  NewGraph();
  node = Store(3, {});
  value = {};
  value.cooperative = 1;
  ASSERT_CU(Cu().cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
  ExpectRefused(exec, kAttributes, node);
  const CUgraphExec together = Instantiate(graph_);
  NewGraph();
  ExpectRefused(together, kAttributes, Store(4, {}));
  Run(together);
  EXPECT_EQ(Word(), 3u);
}

}  // namespace
}  // namespace tandem::driver_test
