// Updates of whole graphs: an instantiated graph takes the parameters of another graph of the same
// shape, or, where it cannot, says why and stays as it was.
#include <atomic>
#include <utility>

#include "tests/driver/graph_fixture.h"

namespace tandem::driver_test {
namespace {

class GraphUpdateTest : public GraphTest {
 protected:
  // A graph of a node of each kind, one after the other, and what they use.
  struct Everything {
    uint32_t value = 0;  // and those that come after it
    size_t word = 0;     // the first of four
    uint32_t source = 0;
    std::atomic<int> calls = 0;
    CUevent waited = nullptr, recorded = nullptr;
    CUgraph child = nullptr;
  };

  void SetUp() override {
    GraphTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_CU(Cu().cuStreamCreate(&other_, CU_STREAM_NON_BLOCKING));
  }
  void TearDown() override {
    if (other_ != nullptr) EXPECT_CU(CUDA_SUCCESS, Cu().cuStreamDestroy_v2(other_));
    GraphTest::TearDown();
  }

  void NewGraph() { ASSERT_CU(Cu().cuGraphCreate(&graph_, 0)); }

  CUgraphNode CopyIn(const void* from, size_t word, std::vector<CUgraphNode> before) {
    const CUDA_MEMCPY3D copy = Copy(from, words_ + 4 * word, 4);
    CUgraphNode node = nullptr;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuGraphAddMemcpyNode(&node, graph_, before.data(), before.size(),
                                                      &copy, context_));
    return node;
  }
  CUgraphNode Child(CUgraph child, std::vector<CUgraphNode> before) {
    CUgraphNode node = nullptr;
    EXPECT_CU(CUDA_SUCCESS,
              Cu().cuGraphAddChildGraphNode(&node, graph_, before.data(), before.size(), child));
    return node;
  }
  CUgraph Filling(uint32_t value, size_t word) {
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    const CUDA_MEMSET_NODE_PARAMS fill = {words_ + 4 * word, 0, value, 4, 1, 1};
    EXPECT_CU(CUDA_SUCCESS, Cu().cuGraphCreate(&graph, 0));
    EXPECT_CU(CUDA_SUCCESS, Cu().cuGraphAddMemsetNode(&node, graph, nullptr, 0, &fill, context_));
    return graph;
  }

  // In a new graph_.
  void Build(Everything* it) {
    NewGraph();
    it->source = it->value;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuEventCreate(&it->waited, CU_EVENT_DISABLE_TIMING));
    EXPECT_CU(CUDA_SUCCESS, Cu().cuEventCreate(&it->recorded, CU_EVENT_DEFAULT));
    CUgraphNode wait = nullptr, host = nullptr, record = nullptr;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuGraphAddEventWaitNode(&wait, graph_, nullptr, 0, it->waited));
    const CUgraphNode copy = CopyIn(&it->source, it->word, {wait});
    const CUgraphNode fill = Memset(it->value + 1, {copy}, it->word + 1);
    const CUgraphNode kernel = Store(it->value + 2, {fill}, it->word + 2);
    it->child = Filling(it->value + 3, it->word + 3);
    const CUgraphNode child = Child(it->child, {kernel});
    const CUDA_HOST_NODE_PARAMS call = {
        [](void* calls) { static_cast<std::atomic<int>*>(calls)->fetch_add(1); }, &it->calls};
    EXPECT_CU(CUDA_SUCCESS, Cu().cuGraphAddHostNode(&host, graph_, &child, 1, &call));
    EXPECT_CU(CUDA_SUCCESS,
              Cu().cuGraphAddEventRecordNode(&record, graph_, &host, 1, it->recorded));
  }

  // Runs it, and sees that all of it is what `it` says.
  void ExpectToDo(CUgraphExec exec, Everything* it) {
    ASSERT_CU(Cu().cuMemsetD8_v2(words_, 0, 64));
    ASSERT_CU(Cu().cuCtxSynchronize());
    const int calls = it->calls.load();
    float milliseconds = -1;
    {
      Door door;
      door.HoldIn(other_);
      ASSERT_CU(Cu().cuEventRecord(it->waited, other_));
      ASSERT_CU(Cu().cuGraphLaunch(exec, stream_));
      EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuStreamQuery(stream_));
      EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuEventQuery(it->recorded));
    }
    ASSERT_CU(Cu().cuStreamSynchronize(stream_));
    for (uint32_t i = 0; i < 16; ++i) {
      const bool own = i >= it->word && i < it->word + 4;
      const auto expected = own ? it->value + i - static_cast<uint32_t>(it->word) : 0;
      EXPECT_EQ(Word(i), expected) << "word " << i;
    }
    EXPECT_EQ(it->calls.load(), calls + 1);
    EXPECT_CU(CUDA_SUCCESS, Cu().cuEventElapsedTime(&milliseconds, it->recorded, it->recorded));
    EXPECT_EQ(milliseconds, 0);
  }

  // A refusal in either form, for the reason given and because of `node`.
  // A card may name another node for a shape that differs, and the older form another reason.
  void ExpectRefused(CUgraphExec exec, CUgraphExecUpdateResult expected, CUgraphNode node) {
    const bool exact =
        OnSoftwareGpu() || (expected != CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED &&
                            expected != CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
    CUgraphExecUpdateResultInfo info = {CU_GRAPH_EXEC_UPDATE_SUCCESS, nullptr, nullptr};
    EXPECT_CU(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, Cu().cuGraphExecUpdate_v2(exec, graph_, &info));
    EXPECT_EQ(info.result, expected);
    if (exact) {
      EXPECT_EQ(info.errorNode, node);
    }
    CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    CUgraphNode error_node = nullptr;
    EXPECT_CU(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
              Cu().cuGraphExecUpdate(exec, graph_, &error_node, &result));
    if (!exact) return;
    EXPECT_EQ(result, expected);
    EXPECT_EQ(error_node, node);
  }

  CUstream other_ = nullptr;
};

TEST_F(GraphUpdateTest, EveryKindOfNodeChanges) {
  Everything first, second, third;
  first.value = 10;
  second.value = 20;
  second.word = 6;
  third.value = 30;
  third.word = 12;
  Build(&first);
  const CUgraphExec exec = Instantiate(graph_);
  ExpectToDo(exec, &first);
  Build(&second);
  CUgraphNode error_node = nullptr;
  auto result = CU_GRAPH_EXEC_UPDATE_ERROR;
  ASSERT_CU(Cu().cuGraphExecUpdate(exec, graph_, &error_node, &result));
  EXPECT_EQ(result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
  ExpectToDo(exec, &second);
  Build(&third);
  CUgraphExecUpdateResultInfo info = {CU_GRAPH_EXEC_UPDATE_ERROR, nullptr, nullptr};
  ASSERT_CU(Cu().cuGraphExecUpdate_v2(exec, graph_, &info));
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
  ASSERT_CU(Cu().cuGraphDestroy(graph_));  // it has been copied
  ASSERT_CU(Cu().cuGraphDestroy(third.child));
  ExpectToDo(exec, &third);
  EXPECT_EQ(first.calls.load(), 1);
  EXPECT_EQ(second.calls.load(), 1);
}

TEST_F(GraphUpdateTest, TheShapeStays) {
  constexpr auto kTopology = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  constexpr auto kType = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
  const CUgraphNode set = Memset(1, {});
  Child(Filling(2, 1), {set});
  const CUgraphExec exec = Instantiate(graph_);
  NewGraph();
  Memset(3, {});
  ExpectRefused(exec, kTopology, nullptr);  // it has fewer nodes
  NewGraph();
  Memset(3, {});
  const CUgraphNode loose = Child(Filling(4, 1), {});
  ExpectRefused(exec, kTopology, loose);
  NewGraph();
  const CUgraphNode store = Store(3, {});
  Child(Filling(4, 1), {store});
  ExpectRefused(exec, kType, store);
  NewGraph();
  Empty({});
  const CUgraph odd = graph_;
  NewGraph();
  Child(odd, {Memset(3, {})});
  CUgraphExecUpdateResultInfo info = {CU_GRAPH_EXEC_UPDATE_SUCCESS, nullptr, nullptr};
  EXPECT_CU(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, Cu().cuGraphExecUpdate_v2(exec, graph_, &info));
  EXPECT_EQ(info.result, kType);  // of the child's node
  EXPECT_NE(info.errorNode, nullptr);
  Run(exec);
  EXPECT_EQ(Word(0), 1u);
  EXPECT_EQ(Word(1), 2u);
}

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

TEST_F(GraphUpdateTest, WorkStaysInItsContext) {
  Store(7, {Memset(8, {})}, 1);
  const CUgraphExec exec = Instantiate(graph_);
  CUcontext second = nullptr;
  CUmodule module = nullptr;
  CUfunction store = nullptr;
  ASSERT_CU(Cu().cuCtxCreate_v2(&second, 0, 0));
  ASSERT_CU(Cu().cuModuleLoadData(&module, kKernels));
  ASSERT_CU(Cu().cuModuleGetFunction(&store, module, "store"));
  NewGraph();
  const CUgraphNode set = Memset(9, {});
  uint32_t value = 10;
  void* arguments[] = {&words_, &value};
  const CUDA_KERNEL_NODE_PARAMS_v2 kernel = Params(store, arguments);
  CUgraphNode node = nullptr;
  ASSERT_CU(Cu().cuGraphAddKernelNode_v2(&node, graph_, &set, 1, &kernel));
  ExpectRefused(exec, CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE, node);
  if (!OnSoftwareGpu()) {  // a card may let a fill move to another context
    ASSERT_CU(Cu().cuCtxDestroy_v2(second));
    return;
  }
  NewGraph();
  const CUDA_MEMSET_NODE_PARAMS fill = {words_, 0, 9, 4, 1, 1};
  ASSERT_CU(Cu().cuGraphAddMemsetNode(&node, graph_, nullptr, 0, &fill, second));
  Store(10, {node}, 1);
  ExpectRefused(exec, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, node);
  ASSERT_CU(Cu().cuCtxDestroy_v2(second));
  Run(exec);
  EXPECT_EQ(Word(0), 8u);
  EXPECT_EQ(Word(1), 7u);
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
  EXPECT_CU(CUDA_SUCCESS, Cu().cuGraphExecUpdate_v2(exec, graph_, &info));  // ignores priority
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

TEST_F(GraphUpdateTest, AnAllocationStaysWhatItIs) {
  int pools = 0;
  ASSERT_CU(Cu().cuDeviceGetAttribute(&pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0));
  if (pools == 0 || Cu().cuGraphAddMemAllocNode == nullptr) GTEST_SKIP() << "no pools";
  CUgraphNode alloc = nullptr, free = nullptr;
  const auto build = [&] {
    CUDA_MEM_ALLOC_NODE_PARAMS params = {};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    params.bytesize = 4096;
    ASSERT_CU(Cu().cuGraphAddMemAllocNode(&alloc, graph_, nullptr, 0, &params));
    ASSERT_CU(Cu().cuGraphAddMemFreeNode(&free, graph_, &alloc, 1, params.dptr));
  };
  build();
  const CUgraphExec exec = Instantiate(graph_);
  Run(exec);
  NewGraph();
  build();
  if (!OnSoftwareGpu()) return;  // a card takes one that is the same
  ExpectRefused(exec, CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, alloc);
  Run(exec);
}

}  // namespace
}  // namespace tandem::driver_test
