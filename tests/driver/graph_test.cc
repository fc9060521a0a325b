// Graphs that are put together by hand: their shape and what a launch of them does.
#include <algorithm>
#include <atomic>

#include "tests/driver/graph_fixture.h"

namespace tandem::driver_test {
namespace {

TEST_F(GraphTest, RunsNodesInTheOrderOfTheirEdges) {
  // A diamond whose nodes were added in no useful order.
  const CUgraphNode last = Store(7, {});
  const CUgraphNode left = Memset(3, {}, 0), right = Memset(4, {}, 1), first = Store(1, {}, 2);
  const CUgraphNode from[] = {first, first, left, right}, to[] = {left, right, last, last};
  ASSERT_CU(Cu().cuGraphAddDependencies(graph_, from, to, 4));
  const CUgraphExec exec = Instantiate(graph_);
  Run(exec);
  EXPECT_EQ(Word(0), 7u);
  EXPECT_EQ(Word(1), 4u);
  EXPECT_EQ(Word(2), 1u);
  ASSERT_CU(Cu().cuGraphExecDestroy(exec));
  ASSERT_CU(Cu().cuGraphDestroy(graph_));
}

// A graph and its host nodes belong to the process, not to a context.
TEST_F(GraphTest, NeedsNoContextToBePutTogether) {
  CUcontext popped = nullptr;
  CUgraph clone = nullptr;
  CUgraphNode call = nullptr, twin = nullptr;
  std::atomic<int> calls = 0;
  const CUDA_HOST_NODE_PARAMS params = {
      [](void* count) { static_cast<std::atomic<int>*>(count)->fetch_add(1); }, &calls};
  ASSERT_CU(Cu().cuCtxPopCurrent_v2(&popped));
  const CUgraphNode first = Empty({}), last = Empty({});
  ASSERT_CU(Cu().cuGraphAddHostNode(&call, graph_, &first, 1, &params));
  ASSERT_CU(Cu().cuGraphAddDependencies(graph_, &call, &last, 1));
  ASSERT_CU(Cu().cuGraphClone(&clone, graph_));
  ASSERT_CU(Cu().cuGraphNodeFindInClone(&twin, call, clone));
  size_t count = 0;
  ASSERT_CU(Cu().cuGraphGetNodes(clone, nullptr, &count));
  EXPECT_EQ(count, 3u);
  ASSERT_CU(Cu().cuGraphDestroy(graph_));
  ASSERT_CU(Cu().cuCtxSetCurrent(context_));
  Run(Instantiate(clone));
  EXPECT_EQ(calls.load(), 1);
}

TEST_F(GraphTest, IsOneTaskOfItsStream) {
  const CUgraphNode first = Memset(1, {});
  Add(10, {first}, graph_);
  const CUgraphExec exec = Instantiate(graph_);
  Door door;
  door.HoldIn(stream_);
  ASSERT_CU(Cu().cuMemsetD32Async(words_, 99, 1, stream_));
  ASSERT_CU(Cu().cuGraphLaunch(exec, stream_));
  uint32_t between = 0;
  CUdeviceptr copy = words_ + 32;
  ASSERT_CU(Cu().cuMemcpyDtoDAsync_v2(copy, words_, 4, stream_));
  ASSERT_CU(Cu().cuMemsetD32Async(words_, 5, 1, stream_));
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuStreamQuery(stream_));
  door.Open();
  ASSERT_CU(Cu().cuStreamSynchronize(stream_));
  ASSERT_CU(Cu().cuMemcpyDtoH_v2(&between, copy, 4));
  EXPECT_EQ(between, 11u);
  EXPECT_EQ(Word(), 5u);
}

TEST_F(GraphTest, LaunchesOfOneComeOneAfterTheOther) {
  CUstream other = nullptr;
  ASSERT_CU(Cu().cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  Add(1, {}, graph_);
  const CUgraphExec exec = Instantiate(graph_);
  Door door;
  door.HoldIn(stream_);
  ASSERT_CU(Cu().cuGraphLaunch(exec, stream_));
  ASSERT_CU(Cu().cuGraphLaunch(exec, other));
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuStreamQuery(other));
  door.Open();
  ASSERT_CU(Cu().cuStreamSynchronize(other));
  EXPECT_EQ(Word(), 2u);
  for (int i = 0; i < 1000; ++i) ASSERT_CU(Cu().cuGraphLaunch(exec, i % 2 != 0 ? stream_ : other));
  ASSERT_CU(Cu().cuCtxSynchronize());
  EXPECT_EQ(Word(), 1002u);
}

TEST_F(GraphTest, BranchesDoNotWaitForEachOther) {
  struct Meeting {
    std::mutex mutex;
    std::condition_variable arrived;
    bool there = false;
  } meeting;
  // A host function in one branch that waits for what the host sees of the other.
  const CUDA_HOST_NODE_PARAMS wait = {[](void* data) {
                                        auto* m = static_cast<Meeting*>(data);
                                        std::unique_lock lock(m->mutex);
                                        m->arrived.wait(lock, [&] { return m->there; });
                                      },
                                      &meeting};
  CUgraphNode host = nullptr, record = nullptr;
  CUevent event = nullptr;
  ASSERT_CU(Cu().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  ASSERT_CU(Cu().cuGraphAddHostNode(&host, graph_, nullptr, 0, &wait));
  const CUgraphNode filled = Memset(8, {});
  ASSERT_CU(Cu().cuGraphAddEventRecordNode(&record, graph_, &filled, 1, event));
  const CUgraphExec exec = Instantiate(graph_);
  ASSERT_CU(Cu().cuGraphLaunch(exec, stream_));
  const bool serial = Cu().cuEventQuery(event) == CUDA_ERROR_NOT_READY &&
                      Cu().cuStreamQuery(stream_) == CUDA_SUCCESS;
  EXPECT_FALSE(serial);
  {
    const std::lock_guard lock(meeting.mutex);
    meeting.there = true;
    meeting.arrived.notify_all();
  }
  ASSERT_CU(Cu().cuStreamSynchronize(stream_));
  ASSERT_CU(Cu().cuEventSynchronize(event));
  EXPECT_EQ(Word(), 8u);
}

TEST_F(GraphTest, ArgumentsAreCopiedWhenTheNodeIsAdded) {
  uint32_t value = 21;
  CUdeviceptr to = words_;
  void* arguments[] = {&to, &value};
  CUDA_KERNEL_NODE_PARAMS_v1 params = {};
  params.func = Kernel("store");
  params.gridDimX = params.gridDimY = params.gridDimZ = 1;
  params.blockDimX = params.blockDimY = params.blockDimZ = 1;
  params.kernelParams = arguments;
  CUgraphNode node = nullptr;
  ASSERT_CU(Cu().cuGraphAddKernelNode(&node, graph_, nullptr, 0, &params));
  value = 22;
  to = 0;
  Run(Instantiate(graph_));
  EXPECT_EQ(Word(), 21u);
  CUDA_KERNEL_NODE_PARAMS_v1 seen = {};
  ASSERT_CU(Cu().cuGraphKernelNodeGetParams(node, &seen));
  EXPECT_EQ(seen.func, params.func);
  EXPECT_EQ(seen.blockDimX, 1u);
  ASSERT_NE(seen.kernelParams, nullptr);
  EXPECT_EQ(*static_cast<uint32_t*>(seen.kernelParams[1]), 21u);
}

TEST_F(GraphTest, AKernelNodeMayNameALibrarysKernelAndAContext) {
  if (Cu().cuLibraryGetKernel == nullptr) GTEST_SKIP() << "a driver without libraries";
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUcontext second = nullptr;
  ASSERT_CU(Cu().cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
  ASSERT_CU(Cu().cuLibraryGetKernel(&kernel, library, "store"));
  uint32_t value = 17;
  void* arguments[] = {&words_, &value};
  CUDA_KERNEL_NODE_PARAMS_v2 params = Params(nullptr, arguments), seen = {};
  CUgraphNode node = nullptr;
  EXPECT_CU(OnSoftwareGpu() ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE,
            Cu().cuGraphAddKernelNode_v2(&node, graph_, nullptr, 0, &params));
  params.kern = kernel;
  ASSERT_CU(Cu().cuGraphAddKernelNode_v2(&node, graph_, nullptr, 0, &params));
  ASSERT_CU(Cu().cuGraphKernelNodeGetParams_v2(node, &seen));
  if (OnSoftwareGpu()) {  // a card tells the function, too
    EXPECT_EQ(seen.func, nullptr);
  }
  EXPECT_EQ(seen.kern, kernel);
  Run(Instantiate(graph_));
  EXPECT_EQ(Word(), 17u);
  // In another context than the current one.
  ASSERT_CU(Cu().cuCtxCreate_v2(&second, 0, 0));
  params.ctx = context_;
  value = 18;
  ASSERT_CU(Cu().cuGraphKernelNodeSetParams_v2(node, &params));
  ASSERT_CU(Cu().cuGraphKernelNodeGetParams_v2(node, &seen));
  EXPECT_EQ(seen.ctx, context_);
  ASSERT_CU(Cu().cuCtxDestroy_v2(second));
  Run(Instantiate(graph_));
  EXPECT_EQ(Word(), 18u);
  ASSERT_CU(Cu().cuLibraryUnload(library));
}

TEST_F(GraphTest, ACopyOfManySlicesCostsNothingUntilItRuns) {
  uint8_t from = 0, to = 0;
  CUDA_MEMCPY3D copy = Copy(&from, 0, 1);
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = &to;
  copy.srcPitch = copy.dstPitch = copy.srcHeight = copy.dstHeight = 1;
  copy.Depth = size_t{1} << 40;
  CUgraphNode node = nullptr;
  const CUresult result = Cu().cuGraphAddMemcpyNode(&node, graph_, nullptr, 0, &copy, context_);
  EXPECT_TRUE(result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_VALUE) << Named(result);
  if (result != CUDA_SUCCESS) return;
  CUDA_MEMCPY3D shown = {};
  ASSERT_CU(Cu().cuGraphMemcpyNodeGetParams(node, &shown));
  EXPECT_EQ(shown.Depth, size_t{1} << 40);
}

TEST_F(GraphTest, CopiesAllWays) {
  uint32_t in = 1234, out = 0;
  CUgraphNode up = nullptr, across = nullptr, down = nullptr;
  CUDA_MEMCPY3D copy = Copy(&in, words_, 4);
  ASSERT_CU(Cu().cuGraphAddMemcpyNode(&up, graph_, nullptr, 0, &copy, context_));
  CUDA_MEMCPY3D shown = {};
  ASSERT_CU(Cu().cuGraphMemcpyNodeGetParams(up, &shown));
  EXPECT_EQ(shown.srcHost, &in);
  EXPECT_EQ(shown.dstDevice, words_);
  EXPECT_EQ(shown.WidthInBytes, 4u);
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = words_;
  copy.dstDevice = words_ + 8;
  ASSERT_CU(Cu().cuGraphAddMemcpyNode(&across, graph_, &up, 1, &copy, context_));
  copy.srcDevice = words_ + 8;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = &out;
  ASSERT_CU(Cu().cuGraphAddMemcpyNode(&down, graph_, &across, 1, &copy, context_));
  const CUgraphExec exec = Instantiate(graph_);
  Run(exec);
  EXPECT_EQ(out, 1234u);
  in = 77;  // the address was copied, not what is there
  Run(exec);
  EXPECT_EQ(out, 77u);
}

TEST_F(GraphTest, CopiesBoxes) {
  // A box of 3 x 2 x 2 bytes out of the middle of 8 x 4 x 4.
  const std::vector<uint8_t> source = Pattern(size_t{8} * 4 * 4, 5);
  const CUdeviceptr from = Allocate(source.size()), to = Allocate(12);
  Write(from, source);
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from;
  copy.srcXInBytes = 2;
  copy.srcY = copy.srcZ = 1;
  copy.srcPitch = 8;
  copy.srcHeight = 4;
  copy.dstDevice = to;
  copy.dstPitch = 3;
  copy.dstHeight = 2;
  copy.WidthInBytes = 3;
  copy.Height = copy.Depth = 2;
  CUgraphNode node = nullptr;
  ASSERT_CU(Cu().cuGraphAddMemcpyNode(&node, graph_, nullptr, 0, &copy, context_));
  Run(Instantiate(graph_));
  std::vector<uint8_t> expected;
  for (size_t z = 1; z < 3; ++z) {
    for (size_t y = 1; y < 3; ++y) {
      for (size_t x = 2; x < 5; ++x) expected.push_back(source[(z * 4 + y) * 8 + x]);
    }
  }
  EXPECT_EQ(Read(to, 12), expected);
}

TEST_F(GraphTest, ChildrenAreCopiesOfTheirGraph) {
  CUgraph child = nullptr, inside = nullptr;
  ASSERT_CU(Cu().cuGraphCreate(&child, 0));
  const CUgraphNode plus = Add(5, {}, child);
  Add(6, {plus}, child);
  const CUgraphNode before = Memset(100, {});
  CUgraphNode node = nullptr;
  ASSERT_CU(Cu().cuGraphAddChildGraphNode(&node, graph_, &before, 1, child));
  Add(1000, {node}, graph_);
  ASSERT_CU(Cu().cuGraphDestroy(child));
  ASSERT_CU(Cu().cuGraphChildGraphNodeGetGraph(node, &inside));
  size_t count = 0;
  ASSERT_CU(Cu().cuGraphGetNodes(inside, nullptr, &count));
  EXPECT_EQ(count, 2u);
  const CUgraphExec exec = Instantiate(graph_);
  ASSERT_CU(Cu().cuGraphDestroy(graph_));
  Run(exec);
  EXPECT_EQ(Word(), 1111u);
}

TEST_F(GraphTest, EventsTieGraphsToStreams) {
  CUevent event = nullptr;
  CUstream other = nullptr;
  ASSERT_CU(Cu().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  ASSERT_CU(Cu().cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  CUgraphNode wait = nullptr;
  CUevent seen = nullptr;
  ASSERT_CU(Cu().cuGraphAddEventWaitNode(&wait, graph_, nullptr, 0, event));
  ASSERT_CU(Cu().cuGraphEventWaitNodeGetEvent(wait, &seen));
  EXPECT_EQ(seen, event);
  Add(1, {wait}, graph_);
  const CUgraphExec exec = Instantiate(graph_);
  Door door;
  door.HoldIn(other);
  ASSERT_CU(Cu().cuMemsetD32Async(words_, 50, 1, other));
  ASSERT_CU(Cu().cuEventRecord(event, other));
  ASSERT_CU(Cu().cuGraphLaunch(exec, stream_));
  EXPECT_CU(CUDA_ERROR_NOT_READY, Cu().cuStreamQuery(stream_));
  door.Open();
  ASSERT_CU(Cu().cuStreamSynchronize(stream_));
  EXPECT_EQ(Word(), 51u);
}

TEST_F(GraphTest, TellsItsShape) {
  const CUgraphNode a = Empty({}), b = Empty({a}), c = Empty({a, b});
  size_t count = 0;
  ASSERT_CU(Cu().cuGraphGetNodes(graph_, nullptr, &count));
  ASSERT_EQ(count, 3u);
  std::vector<CUgraphNode> nodes(5, a);
  count = 5;
  ASSERT_CU(Cu().cuGraphGetNodes(graph_, nodes.data(), &count));
  EXPECT_EQ(count, 3u);
  EXPECT_EQ(nodes[4], nullptr);
  ASSERT_CU(Cu().cuGraphGetRootNodes(graph_, nodes.data(), &(count = 1)));
  EXPECT_EQ(nodes[0], a);
  ASSERT_CU(Cu().cuGraphGetEdges(graph_, nullptr, nullptr, &count));
  EXPECT_EQ(count, 3u);
  std::vector<CUgraphNode> from(3), to(3);
  ASSERT_CU(Cu().cuGraphGetEdges(graph_, from.data(), to.data(), &count));
  EXPECT_EQ(std::count(to.begin(), to.end(), c), 2);
  ASSERT_CU(Cu().cuGraphNodeGetDependencies(c, nullptr, &count));
  EXPECT_EQ(count, 2u);
  ASSERT_CU(Cu().cuGraphNodeGetDependentNodes(b, nodes.data(), &(count = 5)));
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(nodes[0], c);
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_KERNEL;
  ASSERT_CU(Cu().cuGraphNodeGetType(a, &type));
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_EMPTY);
  ASSERT_CU(Cu().cuGraphRemoveDependencies(graph_, &a, &c, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuGraphRemoveDependencies(graph_, &a, &c, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuGraphAddDependencies(graph_, &a, &b, 1));
  ASSERT_CU(Cu().cuGraphDestroyNode(b));
  ASSERT_CU(Cu().cuGraphGetEdges(graph_, nullptr, nullptr, &count));
  EXPECT_EQ(count, 0u);
}

TEST_F(GraphTest, ClonesKnowWhatTheyCameFrom) {
  const CUgraphNode first = Memset(1, {});
  Add(1, {first}, graph_);
  CUgraph clone = nullptr;
  CUgraphNode mine = nullptr;
  ASSERT_CU(Cu().cuGraphClone(&clone, graph_));
  ASSERT_CU(Cu().cuGraphNodeFindInClone(&mine, first, clone));
  EXPECT_NE(mine, first);
  CUDA_MEMSET_NODE_PARAMS params = {};
  ASSERT_CU(Cu().cuGraphMemsetNodeGetParams(mine, &params));
  EXPECT_EQ(params.value, 1u);
  EXPECT_EQ(params.dst, words_);
  params.value = 40;
  ASSERT_CU(Cu().cuGraphMemsetNodeSetParams(mine, &params));
  Run(Instantiate(graph_));
  EXPECT_EQ(Word(), 2u);
  Run(Instantiate(clone));
  EXPECT_EQ(Word(), 41u);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuGraphNodeFindInClone(&mine, first, graph_));
}

TEST_F(GraphTest, HostFunctionsAreNodes) {
  std::atomic<int> calls = 0;
  const CUDA_HOST_NODE_PARAMS params = {
      [](void* data) { *static_cast<std::atomic<int>*>(data) += 1; }, &calls};
  CUgraphNode node = nullptr;
  ASSERT_CU(Cu().cuGraphAddHostNode(&node, graph_, nullptr, 0, &params));
  CUDA_HOST_NODE_PARAMS seen = {};
  ASSERT_CU(Cu().cuGraphHostNodeGetParams(node, &seen));
  EXPECT_EQ(seen.userData, &calls);
  const CUgraphExec exec = Instantiate(graph_);
  Run(exec);
  Run(exec);
  EXPECT_EQ(calls, 2);
}

TEST_F(GraphTest, AFaultInANodeIsTheContexts) {
  void* arguments[] = {nullptr};
  const CUDA_KERNEL_NODE_PARAMS_v2 params = Params(Kernel("trap"), arguments);
  CUgraphNode node = nullptr;
  ASSERT_CU(Cu().cuGraphAddKernelNode_v2(&node, graph_, nullptr, 0, &params));
  const CUgraphExec exec = Instantiate(graph_);
  ASSERT_CU(Cu().cuGraphLaunch(exec, stream_));
  EXPECT_NE(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
}

TEST_F(GraphTest, RefusesNonsense) {
  CUgraph other = nullptr;
  CUgraphNode node = nullptr, foreign = nullptr;
  CUgraphExec exec = nullptr;
  size_t count = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuGraphCreate(nullptr, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuGraphCreate(&other, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuGraphAddEmptyNode(nullptr, graph_, nullptr, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuGraphAddEmptyNode(&node, graph_, nullptr, 1));
  ASSERT_CU(Cu().cuGraphCreate(&other, 0));
  ASSERT_CU(Cu().cuGraphAddEmptyNode(&foreign, other, nullptr, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuGraphAddEmptyNode(&node, graph_, &foreign, 1));
  const CUgraphNode mine = Empty({});
  const CUgraphNode twice[] = {mine, mine};
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuGraphAddEmptyNode(&node, graph_, twice, 2));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuGraphAddDependencies(graph_, &mine, &foreign, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuGraphGetNodes(graph_, nullptr, nullptr));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuGraphGetEdges(graph_, &node, nullptr, &count));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuGraphAddKernelNode_v2(&node, graph_, nullptr, 0, nullptr));
  CUDA_MEMSET_NODE_PARAMS fill = {words_, 0, 0, 3, 1, 1};
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuGraphAddMemsetNode(&node, graph_, nullptr, 0, &fill, context_));
  CUDA_HOST_NODE_PARAMS host = {nullptr, nullptr};
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuGraphAddHostNode(&node, graph_, nullptr, 0, &host));
  CUDA_HOST_NODE_PARAMS seen = {};
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuGraphHostNodeGetParams(mine, &seen));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuGraphInstantiateWithFlags(&exec, graph_, uint64_t{1} << 40));
  EXPECT_NE(Cu().cuGraphAddEventRecordNode(&node, graph_, nullptr, 0, nullptr), CUDA_SUCCESS);
}

}  // namespace
}  // namespace tandem::driver_test
