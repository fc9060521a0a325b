// Graphs that allocate and free memory.
#include <functional>

#include "tests/driver/graph_fixture.h"

namespace tandem::driver_test {
namespace {

constexpr size_t kNodeBytes = size_t{3} << 20;

class GraphMemoryTest : public GraphTest {
 protected:
  void SetUp() override {
    GraphTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    int pools = 0;
    ASSERT_CU(Cu().cuDeviceGetAttribute(&pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0));
    if (pools == 0 || Cu().cuGraphAddMemAllocNode == nullptr) {
      GTEST_SKIP() << "graphs do not allocate here";
    }
  }

  static CUDA_MEM_ALLOC_NODE_PARAMS AllocParams(size_t bytes) {
    CUDA_MEM_ALLOC_NODE_PARAMS params = {};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    params.bytesize = bytes;
    return params;
  }
  CUgraphNode Alloc(CUdeviceptr* pointer, std::vector<CUgraphNode> before = {}) {
    CUDA_MEM_ALLOC_NODE_PARAMS params = AllocParams(kNodeBytes);
    CUgraphNode node = nullptr;
    EXPECT_CU(CUDA_SUCCESS,
              Cu().cuGraphAddMemAllocNode(&node, graph_, before.data(), before.size(), &params));
    *pointer = params.dptr;
    return node;
  }
  CUgraphNode Free(CUgraph graph, CUdeviceptr pointer, std::vector<CUgraphNode> before = {}) {
    CUgraphNode node = nullptr;
    EXPECT_CU(CUDA_SUCCESS,
              Cu().cuGraphAddMemFreeNode(&node, graph, before.data(), before.size(), pointer));
    return node;
  }
  // Fills all of the memory and takes its last word to words_.
  CUgraphNode Use(CUdeviceptr pointer, uint32_t value, CUgraphNode after) {
    const CUDA_MEMSET_NODE_PARAMS fill = {pointer, 0, value, 4, kNodeBytes / 4, 1};
    CUgraphNode filled = nullptr, copied = nullptr;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuGraphAddMemsetNode(&filled, graph_, &after, 1, &fill, context_));
    CUDA_MEMCPY3D copy = Copy(nullptr, words_, 4);
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = pointer + kNodeBytes - 4;
    EXPECT_CU(CUDA_SUCCESS,
              Cu().cuGraphAddMemcpyNode(&copied, graph_, &filled, 1, &copy, context_));
    return copied;
  }
  static uint64_t Get(CUgraphMem_attribute attribute) {
    uint64_t value = ~uint64_t{0};
    EXPECT_CU(CUDA_SUCCESS, Cu().cuDeviceGetGraphMemAttribute(0, attribute, &value));
    return value;
  }
};

TEST_F(GraphMemoryTest, AllocatesUsesAndFreesAtEveryLaunch) {
  CUdeviceptr pointer = 0, freed = 0;
  const CUgraphNode alloc = Alloc(&pointer);
  ASSERT_NE(pointer, 0u);
  const CUgraphNode free = Free(graph_, pointer, {Use(pointer, 77, alloc)});
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  ASSERT_CU(Cu().cuGraphNodeGetType(alloc, &type));
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  ASSERT_CU(Cu().cuGraphNodeGetType(free, &type));
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_MEM_FREE);
  CUDA_MEM_ALLOC_NODE_PARAMS seen = {};
  ASSERT_CU(Cu().cuGraphMemAllocNodeGetParams(alloc, &seen));
  EXPECT_EQ(seen.dptr, pointer);
  EXPECT_EQ(seen.bytesize, kNodeBytes);
  ASSERT_CU(Cu().cuGraphMemFreeNodeGetParams(free, &freed));
  EXPECT_EQ(freed, pointer);
  const CUgraphExec exec = Instantiate(graph_);
  for (int i = 0; i < 3; ++i) {
    ASSERT_CU(Cu().cuMemsetD32_v2(words_, 0, 1));
    ASSERT_CU(Cu().cuCtxSynchronize());
    ASSERT_CU(Cu().cuGraphLaunch(exec, stream_));
    Run(exec);
    EXPECT_EQ(Word(), 77u);
  }
  EXPECT_NE(Cu().cuMemFree_v2(pointer), CUDA_SUCCESS);  // the graph did
}

TEST_F(GraphMemoryTest, WhatItLeavesIsTheProgramsToFree) {
  CUdeviceptr pointer = 0;
  const CUgraphNode alloc = Alloc(&pointer);
  Use(pointer, 5, alloc);
  const CUgraphExec exec = Instantiate(graph_);
  Run(exec);
  EXPECT_EQ(Word(), 5u);
  EXPECT_EQ(Read(pointer, 1)[0], 5);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, Cu().cuGraphLaunch(exec, stream_));  // still allocated
  ASSERT_CU(Cu().cuMemFreeAsync(pointer, stream_));
  EXPECT_NE(Cu().cuMemFreeAsync(pointer, stream_), CUDA_SUCCESS);
  Run(exec);
  ASSERT_CU(Cu().cuMemFree_v2(pointer));
  EXPECT_NE(Cu().cuMemFree_v2(pointer), CUDA_SUCCESS);
  // It outlives its graphs.
  Run(exec);
  ASSERT_CU(Cu().cuGraphExecDestroy(exec));
  ASSERT_CU(Cu().cuGraphDestroy(graph_));
  EXPECT_EQ(Read(pointer, 1)[0], 5);
  ASSERT_CU(Cu().cuMemFree_v2(pointer));
}

TEST_F(GraphMemoryTest, MayBeFreedByItsNextLaunch) {
  CUdeviceptr pointer = 0;
  const CUgraphNode alloc = Alloc(&pointer);
  Use(pointer, 6, alloc);
  CUgraphExec exec = nullptr;
  ASSERT_CU(Cu().cuGraphInstantiateWithFlags(&exec, graph_,
                                             CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
  for (int i = 0; i < 3; ++i) Run(exec);
  EXPECT_EQ(Word(), 6u);
  ASSERT_CU(Cu().cuMemFree_v2(pointer));
  Run(exec);
  ASSERT_CU(Cu().cuMemFree_v2(pointer));
}

TEST_F(GraphMemoryTest, AnotherGraphMayFreeIt) {
  CUdeviceptr pointer = 0;
  CUgraph other = nullptr;
  const CUgraphNode alloc = Alloc(&pointer);
  Use(pointer, 8, alloc);
  const CUgraphExec exec = Instantiate(graph_);
  ASSERT_CU(Cu().cuGraphCreate(&other, 0));
  Free(other, pointer);
  CUgraphNode again = nullptr;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuGraphAddMemFreeNode(&again, other, nullptr, 0, pointer));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuGraphAddMemFreeNode(&again, graph_, nullptr, 0, words_));
  const CUgraphExec freeing = Instantiate(other);
  for (int i = 0; i < 3; ++i) {
    Run(exec);
    Run(freeing);
  }
  EXPECT_EQ(Word(), 8u);
}

TEST_F(GraphMemoryTest, CapturedAllocationsBecomeNodes) {
  CUdeviceptr pointer = 0, plain = 0;
  CUgraph graph = nullptr;
  CUgraphNode nodes[8] = {};
  size_t count = 8;
  ASSERT_CU(Cu().cuMemAllocAsync(&plain, 4096, stream_));
  ASSERT_CU(Cu().cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_CU(Cu().cuMemAllocAsync(&pointer, kNodeBytes, stream_));
  ASSERT_CU(Cu().cuMemsetD32Async(pointer, 9, kNodeBytes / 4, stream_));
  ASSERT_CU(Cu().cuMemcpyDtoDAsync_v2(words_, pointer + kNodeBytes - 4, 4, stream_));
  EXPECT_NE(Cu().cuMemFreeAsync(plain, stream_), CUDA_SUCCESS);  // of no graph
  ASSERT_CU(Cu().cuMemFreeAsync(pointer, stream_));
  ASSERT_CU(Cu().cuStreamEndCapture(stream_, &graph));
  ASSERT_CU(Cu().cuGraphGetNodes(graph, nodes, &count));
  ASSERT_EQ(count, 4u);
  CUgraphNodeType first = CU_GRAPH_NODE_TYPE_EMPTY, last = CU_GRAPH_NODE_TYPE_EMPTY;
  ASSERT_CU(Cu().cuGraphNodeGetType(nodes[0], &first));
  ASSERT_CU(Cu().cuGraphNodeGetType(nodes[3], &last));
  EXPECT_EQ(first, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  EXPECT_EQ(last, CU_GRAPH_NODE_TYPE_MEM_FREE);
  const CUgraphExec exec = Instantiate(graph);
  for (int i = 0; i < 2; ++i) Run(exec);
  EXPECT_EQ(Word(), 9u);
  ASSERT_CU(Cu().cuMemFreeAsync(plain, stream_));
}

TEST_F(GraphMemoryTest, HasOneCopyAndOnlyGrows) {
  CUdeviceptr pointer = 0;
  const CUgraphNode alloc = Alloc(&pointer);
  const CUgraphNode free = Free(graph_, pointer, {alloc});
  CUgraph clone = nullptr, parent = nullptr;
  CUgraphNode child = nullptr;
  CUgraphExec second = nullptr;
  EXPECT_NE(Cu().cuGraphClone(&clone, graph_), CUDA_SUCCESS);
  ASSERT_CU(Cu().cuGraphCreate(&parent, 0));
  EXPECT_NE(Cu().cuGraphDestroyNode(alloc), CUDA_SUCCESS);
  EXPECT_NE(Cu().cuGraphRemoveDependencies(graph_, &alloc, &free, 1), CUDA_SUCCESS);
  EXPECT_NE(Cu().cuGraphAddChildGraphNode(&child, parent, nullptr, 0, graph_), CUDA_SUCCESS);
  const CUgraphExec first = Instantiate(graph_);
  EXPECT_NE(Cu().cuGraphInstantiateWithFlags(&second, graph_, 0), CUDA_SUCCESS);
  ASSERT_CU(Cu().cuGraphExecDestroy(first));
  ASSERT_CU(Cu().cuGraphInstantiateWithFlags(&second, graph_, 0));
  CUDA_MEM_ALLOC_NODE_PARAMS params = AllocParams(0);
  CUgraphNode node = nullptr;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuGraphAddMemAllocNode(&node, graph_, nullptr, 0, &params));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuGraphAddMemAllocNode(&node, graph_, nullptr, 0, nullptr));
}

// Only what is launched itself backs what it allocates.
TEST_F(GraphMemoryTest, AGraphThatBelongsToANodeTakesNone) {
  CUgraph plain = nullptr, child = nullptr, ended = nullptr;
  CUgraphNode holder = nullptr, node = nullptr;
  ASSERT_CU(Cu().cuGraphCreate(&plain, 0));
  ASSERT_CU(Cu().cuGraphAddChildGraphNode(&holder, graph_, nullptr, 0, plain));
  ASSERT_CU(Cu().cuGraphChildGraphNodeGetGraph(holder, &child));
  CUDA_MEM_ALLOC_NODE_PARAMS params = AllocParams(kNodeBytes);
  EXPECT_NE(Cu().cuGraphAddMemAllocNode(&node, child, nullptr, 0, &params), CUDA_SUCCESS);
  CUdeviceptr pointer = 0;
  Alloc(&pointer);
  EXPECT_NE(Cu().cuGraphAddMemFreeNode(&node, child, nullptr, 0, pointer), CUDA_SUCCESS);
  if (Cu().cuStreamBeginCaptureToGraph == nullptr) GTEST_SKIP() << "a driver older than 12.3";
  ASSERT_CU(Cu().cuStreamBeginCaptureToGraph(stream_, child, nullptr, nullptr, 0,
                                             CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_NE(Cu().cuMemAllocAsync(&pointer, kNodeBytes, stream_), CUDA_SUCCESS);
  Cu().cuStreamEndCapture(stream_, &ended);
}

TEST_F(GraphMemoryTest, AContextThatHasEndedGetsNone) {
  if (!OnSoftwareGpu()) GTEST_SKIP() << "a card may follow the context that has ended";
  CUcontext other = nullptr;
  CUdeviceptr pointer = 0;
  ASSERT_CU(Cu().cuDeviceGraphMemTrim(0));
  const uint64_t before = Get(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
  ASSERT_CU(Cu().cuCtxCreate_v2(&other, 0, 0));
  Alloc(&pointer);
  const CUgraphExec exec = Instantiate(graph_);
  ASSERT_CU(Cu().cuCtxDestroy_v2(other));
  EXPECT_CU(CUDA_ERROR_CONTEXT_IS_DESTROYED, Cu().cuGraphLaunch(exec, stream_));
  EXPECT_EQ(Get(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), before);
}

// What other graphs keep gives way; what one launch needs stays together.
TEST_F(GraphMemoryTest, TakesWhatNobodyUses) {
  if (!HasTheDeviceAlone()) GTEST_SKIP() << kNotAlone;
  size_t free = 0, total = 0;
  ASSERT_CU(Cu().cuDeviceGraphMemTrim(0));
  ASSERT_CU(Cu().cuMemGetInfo_v2(&free, &total));
  const size_t third = free / 3 / kNodeBytes * kNodeBytes;
  const auto make = [&](int count) {
    CUgraph graph = nullptr;
    EXPECT_CU(CUDA_SUCCESS, Cu().cuGraphCreate(&graph, 0));
    for (int i = 0; i < count; ++i) {
      CUDA_MEM_ALLOC_NODE_PARAMS params = AllocParams(third);
      CUgraphNode alloc = nullptr, fill = nullptr;
      EXPECT_CU(CUDA_SUCCESS, Cu().cuGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &params));
      const CUDA_MEMSET_NODE_PARAMS word = {params.dptr + third - 4, 0, 1, 4, 1, 1};
      EXPECT_CU(CUDA_SUCCESS, Cu().cuGraphAddMemsetNode(&fill, graph, &alloc, 1, &word, context_));
      Free(graph, params.dptr, {fill});
    }
    return graph;
  };
  const CUgraphExec two = Instantiate(make(2)), others = Instantiate(make(2));
  for (int i = 0; i < 2; ++i) {
    Run(two);
    Run(others);
  }
  const CUgraphExec four = Instantiate(make(4));
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, Cu().cuGraphLaunch(four, stream_));
  Run(two);
  ASSERT_CU(Cu().cuDeviceGraphMemTrim(0));
}

// What a graph keeps and does not use gives way to whatever the program asks for.
TEST_F(GraphMemoryTest, GivesWayToWhatTheProgramAllocates) {
  if (!HasTheDeviceAlone()) GTEST_SKIP() << kNotAlone;
  size_t free = 0, total = 0;
  ASSERT_CU(Cu().cuDeviceGraphMemTrim(0));
  ASSERT_CU(Cu().cuMemGetInfo_v2(&free, &total));
  const size_t most = free / 3 * 2 / kPage * kPage;
  CUDA_MEM_ALLOC_NODE_PARAMS params = AllocParams(most);
  CUgraphNode node = nullptr;
  ASSERT_CU(Cu().cuGraphAddMemAllocNode(&node, graph_, nullptr, 0, &params));
  Free(graph_, params.dptr, {node});
  const CUgraphExec exec = Instantiate(graph_);
  CUdeviceptr pointer = 0;
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  const std::function<CUresult()> demands[] = {
      [&] { return Cu().cuMemAlloc_v2(&pointer, most); },
      [&] { return Cu().cuMemAllocManaged(&pointer, most, CU_MEM_ATTACH_GLOBAL); },
      [&] { return Cu().cuMemAllocAsync(&pointer, most, stream_); },
      [&] { return Cu().cuMemCreate(&handle, most, &properties, 0); },
  };
  for (const auto& demand : demands) {
    SCOPED_TRACE("demand " + std::to_string(&demand - demands));
    pointer = handle = 0;
    Run(exec);
    CUresult result = demand();
    if (result == CUDA_ERROR_OUT_OF_MEMORY && !OnSoftwareGpu()) {  // a card wants to be told
      ASSERT_CU(Cu().cuDeviceGraphMemTrim(0));
      result = demand();
    }
    ASSERT_CU(result);
    if (OnSoftwareGpu()) {
      EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, Cu().cuGraphLaunch(exec, stream_));
    }
    if (handle != 0) ASSERT_CU(Cu().cuMemRelease(handle));
    if (pointer != 0) ASSERT_CU(Cu().cuMemFree_v2(pointer));
    ASSERT_CU(Cu().cuCtxSynchronize());
  }
  Run(exec);
  ASSERT_CU(Cu().cuDeviceGraphMemTrim(0));
}

// Neither a trim nor an allocation takes a graph's memory that the program has not freed.
TEST_F(GraphMemoryTest, WhatIsAllocatedStays) {
  size_t free = 0, total = 0;
  CUdeviceptr pointer = 0, more = 0;
  const CUgraphNode alloc = Alloc(&pointer);
  Use(pointer, 4, alloc);
  Run(Instantiate(graph_));
  ASSERT_CU(Cu().cuDeviceGraphMemTrim(0));
  ASSERT_CU(Cu().cuMemGetInfo_v2(&free, &total));
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, Cu().cuMemAlloc_v2(&more, free + kPage));
  EXPECT_EQ(Read(pointer, 1)[0], 4);
  EXPECT_EQ(Read(pointer + kNodeBytes - 4, 1)[0], 4);
  ASSERT_CU(Cu().cuMemFree_v2(pointer));
}

// Used is what a graph has, whether it runs or not; reserved is what there is for all of them.
TEST_F(GraphMemoryTest, CountsWhatItHas) {
  constexpr auto kUsed = CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT;
  constexpr auto kUsedHigh = CU_GRAPH_MEM_ATTR_USED_MEM_HIGH;
  constexpr auto kReserved = CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT;
  constexpr auto kReservedHigh = CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
  uint64_t zero = 0;
  ASSERT_CU(Cu().cuDeviceGraphMemTrim(0));
  ASSERT_CU(Cu().cuDeviceSetGraphMemAttribute(0, kUsedHigh, &zero));
  ASSERT_CU(Cu().cuDeviceSetGraphMemAttribute(0, kReservedHigh, &zero));
  const uint64_t used = Get(kUsed), reserved = Get(kReserved);
  CUdeviceptr pointer = 0;
  const CUgraphNode alloc = Alloc(&pointer);
  Use(pointer, 1, alloc);
  CUgraphExec exec = nullptr;
  ASSERT_CU(Cu().cuGraphInstantiateWithFlags(&exec, graph_,
                                             CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
  Run(exec);
  for (const bool allocated : {true, false}) {
    SCOPED_TRACE(allocated);
    EXPECT_GE(Get(kUsed), used + kNodeBytes);
    EXPECT_GE(Get(kReserved), reserved + kNodeBytes);
    EXPECT_LE(Get(kUsed), Get(kReserved));
    if (allocated) ASSERT_CU(Cu().cuMemFree_v2(pointer));
  }
  ASSERT_CU(Cu().cuDeviceGraphMemTrim(0));
  EXPECT_LT(Get(kUsed), used + kNodeBytes);
  EXPECT_LT(Get(kReserved), reserved + kNodeBytes);
  // The peaks stay, until they are reset.
  EXPECT_GE(Get(kUsedHigh), used + kNodeBytes);
  EXPECT_GE(Get(kReservedHigh), reserved + kNodeBytes);
  ASSERT_CU(Cu().cuDeviceSetGraphMemAttribute(0, kUsedHigh, &zero));
  EXPECT_LT(Get(kUsedHigh), used + kNodeBytes);
  EXPECT_GE(Get(kReservedHigh), reserved + kNodeBytes);
  ASSERT_CU(Cu().cuGraphExecDestroy(exec));
}

TEST_F(GraphMemoryTest, KeepsItsMemoryUntilItIsTrimmed) {
  ASSERT_CU(Cu().cuDeviceGraphMemTrim(0));
  const uint64_t before = Get(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
  CUdeviceptr pointer = 0;
  const CUgraphNode alloc = Alloc(&pointer);
  Free(graph_, pointer, {Use(pointer, 1, alloc)});
  Run(Instantiate(graph_));
  EXPECT_GE(Get(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), before + kNodeBytes);
  EXPECT_GE(Get(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), before + kNodeBytes);
  EXPECT_GE(Get(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), kNodeBytes);
  ASSERT_CU(Cu().cuDeviceGraphMemTrim(0));
  EXPECT_EQ(Get(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), before);
  uint64_t zero = 0, one = 1;
  ASSERT_CU(Cu().cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &zero));
  EXPECT_LT(Get(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), before + kNodeBytes);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE,
            Cu().cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &one));
  EXPECT_CU(CUDA_ERROR_INVALID_DEVICE, Cu().cuDeviceGraphMemTrim(999));
}

}  // namespace
}  // namespace tandem::driver_test
