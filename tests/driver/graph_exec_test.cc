// Instantiated graphs: how they are made and how they change.
#include "tests/driver/graph_fixture.h"

namespace tandem::driver_test {
namespace {

using GraphExecTest = GraphTest;

TEST_F(GraphExecTest, ParametersOfAnInstantiatedGraphChange) {
  const CUgraphNode set = Memset(1, {}), store = Store(2, {set}, 1);
  const CUgraphExec exec = Instantiate(graph_);
  CUDA_MEMSET_NODE_PARAMS fill = {words_, 0, 11, 4, 1, 1};
  ASSERT_CU(Cu().cuGraphExecMemsetNodeSetParams(exec, set, &fill, context_));
  uint32_t value = 12;
  CUdeviceptr to = words_ + 4;
  void* arguments[] = {&to, &value};
  const CUDA_KERNEL_NODE_PARAMS_v2 kernel = Params(Kernel("store"), arguments);
  ASSERT_CU(Cu().cuGraphExecKernelNodeSetParams_v2(exec, store, &kernel));
  Run(exec);
  EXPECT_EQ(Word(0), 11u);
  EXPECT_EQ(Word(1), 12u);
  Run(Instantiate(graph_));  // the graph itself is as it was
  EXPECT_EQ(Word(0), 1u);
  EXPECT_EQ(Word(1), 2u);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuGraphExecMemsetNodeSetParams(exec, store, &fill, context_));
}

TEST_F(GraphExecTest, UpdatesTakeAGraphOfTheSameShape) {
  const CUgraphNode set = Memset(1, {});
  Store(2, {set}, 1);
  const CUgraphExec exec = Instantiate(graph_);
  ASSERT_CU(Cu().cuGraphDestroy(graph_));
  ASSERT_CU(Cu().cuGraphCreate(&graph_, 0));
  Store(4, {Memset(3, {})}, 1);
  CUgraphExecUpdateResultInfo info = {CU_GRAPH_EXEC_UPDATE_ERROR, nullptr, nullptr};
  ASSERT_CU(Cu().cuGraphExecUpdate_v2(exec, graph_, &info));
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
  Run(exec);
  EXPECT_EQ(Word(0), 3u);
  EXPECT_EQ(Word(1), 4u);
  Empty({});
  EXPECT_CU(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, Cu().cuGraphExecUpdate_v2(exec, graph_, &info));
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  ASSERT_CU(Cu().cuGraphCreate(&graph_, 0));
  Memset(5, {Memset(6, {})}, 1);
  CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  CUgraphNode error_node = nullptr;
  EXPECT_CU(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
            Cu().cuGraphExecUpdate(exec, graph_, &error_node, &result));
  EXPECT_EQ(result, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
  EXPECT_NE(error_node, nullptr);
  Run(exec);  // nothing of it was taken
  EXPECT_EQ(Word(0), 3u);
  EXPECT_EQ(Word(1), 4u);
}

TEST_F(GraphExecTest, NodesCanBeSwitchedOff) {
  const CUgraphNode set = Memset(9, {});
  Add(1, {set}, graph_);
  const CUgraphExec exec = Instantiate(graph_);
  unsigned int enabled = 7;
  ASSERT_CU(Cu().cuGraphNodeSetEnabled(exec, set, 0));
  ASSERT_CU(Cu().cuGraphNodeGetEnabled(exec, set, &enabled));
  EXPECT_EQ(enabled, 0u);
  Run(exec);
  EXPECT_EQ(Word(), 1u);
  ASSERT_CU(Cu().cuGraphNodeSetEnabled(exec, set, 1));
  Run(exec);
  EXPECT_EQ(Word(), 10u);
}

TEST_F(GraphExecTest, InstantiatesInEveryForm) {
  Memset(1, {});
  CUgraphExec exec = nullptr;
  CUgraphNode error_node = nullptr;
  char log[64] = "x";
  ASSERT_CU(Cu().cuGraphInstantiate(&exec, graph_, &error_node, log, sizeof(log)));
  ASSERT_CU(Cu().cuGraphExecDestroy(exec));
  ASSERT_CU(Cu().cuGraphInstantiate_v2(&exec, graph_, &error_node, log, sizeof(log)));
  ASSERT_CU(Cu().cuGraphExecDestroy(exec));
  CUDA_GRAPH_INSTANTIATE_PARAMS params = {};
  params.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
  params.hUploadStream = stream_;
  ASSERT_CU(Cu().cuGraphInstantiateWithParams(&exec, graph_, &params));
  EXPECT_EQ(params.result_out, CUDA_GRAPH_INSTANTIATE_SUCCESS);
  cuuint64_t flags = 0;
  ASSERT_CU(Cu().cuGraphExecGetFlags(exec, &flags));
  EXPECT_EQ(flags, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
  ASSERT_CU(Cu().cuGraphUpload(exec, stream_));
  Run(exec);
  EXPECT_EQ(Word(), 1u);
}

TEST_F(GraphExecTest, CyclesAreFoundAtTheLatestWhenInstantiated) {
  const CUgraphNode a = Empty({}), b = Empty({a});
  CUgraphExec exec = nullptr;
  const CUresult added = Cu().cuGraphAddDependencies(graph_, &b, &a, 1);
  if (added != CUDA_SUCCESS) GTEST_SKIP() << "this driver refuses the edge";
  EXPECT_NE(Cu().cuGraphInstantiateWithFlags(&exec, graph_, 0), CUDA_SUCCESS);
}

}  // namespace
}  // namespace tandem::driver_test
