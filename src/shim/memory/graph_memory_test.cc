#include "src/shim/memory/graph_memory.h"

#include <cstring>
#include <map>

#include "src/shim/testing/fixed_scene.h"

namespace tandem::shim {
namespace {

// A driver's graphs: nodes that allocate or hold another graph, and memory that graphs share.
class GraphMemoryTest : public FixedScene {
 protected:
  struct Node {
    CUdeviceptr address = 0;
    Bytes bytes;
    CUgraph child = nullptr;
    CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  };
  static inline std::map<CUgraph, std::vector<Node>> graphs;
  static inline Bytes reserved, used;
  static const Node& Of(CUgraphNode node) { return *reinterpret_cast<const Node*>(node); }

  GraphMemoryTest() {
    graphs.clear();
    reserved = used = Bytes();
    real_.cuGraphGetNodes = [](CUgraph graph, CUgraphNode* nodes, size_t* count) {
      std::vector<Node>& all = graphs[graph];
      for (size_t i = 0; nodes != nullptr && i < all.size(); ++i) {
        nodes[i] = reinterpret_cast<CUgraphNode>(&all[i]);
      }
      *count = all.size();
      return CUDA_SUCCESS;
    };
    real_.cuGraphNodeGetType = [](CUgraphNode node, CUgraphNodeType* type) {
      *type = Of(node).child != nullptr  ? CU_GRAPH_NODE_TYPE_GRAPH
              : Of(node).bytes > Bytes() ? CU_GRAPH_NODE_TYPE_MEM_ALLOC
                                         : CU_GRAPH_NODE_TYPE_KERNEL;
      return CUDA_SUCCESS;
    };
    real_.cuGraphChildGraphNodeGetGraph = [](CUgraphNode node, CUgraph* graph) {
      *graph = Of(node).child;
      return CUDA_SUCCESS;
    };
    real_.cuGraphMemAllocNodeGetParams = [](CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* params) {
      params->poolProps.location = Of(node).location;
      params->dptr = Of(node).address;
      params->bytesize = Of(node).bytes.count;
      return CUDA_SUCCESS;
    };
    real_.cuDeviceGetGraphMemAttribute = [](CUdevice, CUgraphMem_attribute attribute, void* value) {
      const bool all = attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT;
      std::memcpy(value, all ? &reserved : &used, sizeof(Bytes));
      return CUDA_SUCCESS;
    };
    real_.cuDeviceGraphMemTrim = [](CUdevice) {
      reserved = used;
      return CUDA_SUCCESS;
    };
  }

  bool Launch(CUgraphExec exec, Bytes then_reserved) {
    const GraphMemory::Room room = memory_.Lacking(exec);
    if (!memory_.MakeRoom(room)) return false;
    reserved = then_reserved;
    memory_.Launched(exec, room, true);
    return true;
  }

  const CUgraph graph_ = reinterpret_cast<CUgraph>(16), child_ = reinterpret_cast<CUgraph>(32);
  const CUgraphExec first_ = reinterpret_cast<CUgraphExec>(16);
  const CUgraphExec second_ = reinterpret_cast<CUgraphExec>(32);
  cuda::RealDriver real_;
  GraphMemory memory_{&real_, 0, &fixed_};
};

TEST_F(GraphMemoryTest, AddressesThatNodesShareCountOnce) {
  graphs[graph_] = {{0x10000000, MiB(3)},
                    {},
                    {0x10000000, MiB(5)},
                    {0x10400000, MiB(4)},
                    {0x20000000, MiB(1), nullptr, {CU_MEM_LOCATION_TYPE_DEVICE, 1}},
                    {0x28000000, MiB(1), nullptr, {CU_MEM_LOCATION_TYPE_HOST, 0}},
                    {0, Bytes(), child_}};
  graphs[child_] = {{0x30000000, Bytes(100)}};
  EXPECT_EQ(memory_.SizeOf(graph_), MiB(8 + 2));
  EXPECT_EQ(memory_.SizeOf(child_), MiB(2));
  EXPECT_EQ(memory_.SizeOf(reinterpret_cast<CUgraph>(48)), Bytes());
}

TEST_F(GraphMemoryTest, ALaunchAsksForRoomOnceUntilMemoryIsGivenBack) {
  EXPECT_EQ(memory_.Lacking(first_).bytes, Bytes());
  memory_.Instantiated(first_, MiB(40));
  EXPECT_EQ(memory_.Lacking(first_).bytes, MiB(40));
  EXPECT_TRUE(Launch(first_, MiB(40)));
  daemon_.AwaitFixed(MiB(40));
  EXPECT_EQ(memory_.Lacking(first_).bytes, Bytes());
  EXPECT_TRUE(memory_.Trim());
  daemon_.AwaitFixed(Bytes());
  EXPECT_EQ(memory_.Lacking(first_).bytes, MiB(40));
  EXPECT_FALSE(memory_.Trim());
  memory_.Ends(first_);
  EXPECT_EQ(memory_.Lacking(first_).bytes, Bytes());
}

// As a card does, which lets graphs share memory, and as one that does not.
TEST_F(GraphMemoryTest, IsCountedAsTheDriverSharesIt) {
  memory_.Instantiated(first_, MiB(30));
  memory_.Instantiated(second_, MiB(30));
  EXPECT_TRUE(Launch(first_, MiB(30)));
  EXPECT_TRUE(Launch(second_, MiB(30)));
  daemon_.AwaitFixed(MiB(30));
  memory_.Trim();
  EXPECT_TRUE(Launch(first_, MiB(30)));
  EXPECT_TRUE(Launch(second_, MiB(60)));
  daemon_.AwaitFixed(MiB(60));
}

TEST_F(GraphMemoryTest, WhatCannotBeHadIsRefused) {
  memory_.Instantiated(first_, MiB(60));
  memory_.Instantiated(second_, MiB(10));
  EXPECT_TRUE(Launch(first_, MiB(60)));
  used = MiB(60);
  EXPECT_FALSE(Launch(second_, MiB(70)));
  EXPECT_FALSE(memory_.Trim());  // it is in use
  used = Bytes();
  EXPECT_TRUE(memory_.Trim());
  EXPECT_TRUE(Launch(second_, MiB(10)));
  daemon_.AwaitFixed(MiB(10));
}

}  // namespace
}  // namespace tandem::shim
