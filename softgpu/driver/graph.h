// Graph: work that is described first and run later, as a directed graph of nodes. What one node
// does is a Work, which is also what a captured call leaves behind.
//
// Threading: graphs, instantiated ones and captures are guarded by the driver's graphs_mutex. A
// Work alone is a value.
//
// Invariants:
// 1. Both ends of an edge are nodes of the same graph, and each end knows it, once.
// 2. A visible graph and its nodes are found by their handles as long as they exist.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <variant>
#include <vector>

#include "softgpu/driver/context.h"
#include "softgpu/engine/launch_attributes.h"
#include "softgpu/engine/work.h"
#include "softgpu/memory/graph_memory.h"
#include "src/cuda/driver_types.h"

namespace tandem::soft {

class Graph;
struct GraphExec;

struct KernelWork {
  CUfunction handle = nullptr;
  CUkernel kernel = nullptr;  // what the handle is, where a node was told of it by that name
  std::shared_ptr<Function> function;
  ptx::Launch launch;
  int priority = 0;  // counts in graphs that are to go by it
  Hints hints;
};
struct CopyWork {
  CUDA_MEMCPY3D shown = {};  // as the program sees it
  Copy copy;
  bool to_device = false;
  bool from_device = false;
  std::shared_ptr<uint8_t[]> aside = {};  // where it reads, if what it reads was put there for it
};
struct FillWork {
  Fill fill;
};
struct HostWork {
  CUhostFn function = nullptr;
  void* data = nullptr;
};
struct EmptyWork {};
struct ChildWork {
  std::shared_ptr<Graph> graph;
};
struct EventWork {
  CUevent handle = nullptr;
  std::shared_ptr<Event> event;
  bool record = false;  // else it waits
};

struct AllocWork {
  CUDA_MEM_ALLOC_NODE_PARAMS shown = {};  // as the program sees it
  std::vector<CUmemAccessDesc> access;    // what the above points to
  std::shared_ptr<GraphMemory::Block> block;
};
struct FreeWork {
  std::shared_ptr<GraphMemory::Block> block;
};

// A variable that kernels set and conditional nodes read. Its handle is the device address of its
// value, which lives as long as the context.
struct Condition {
  std::shared_ptr<Context> context;
  CUgraphConditionalHandle handle = 0;
  uint32_t launch_value = 0;
  bool assigned = false;  // the value is launch_value when the graph of the condition begins
  bool used = false;      // by a node

  uint32_t* value() const { return reinterpret_cast<uint32_t*>(handle); }
};
struct ConditionalWork {
  std::shared_ptr<Condition> condition;
  CUgraphConditionalNodeType type = CU_GRAPH_COND_TYPE_IF;
  std::vector<std::shared_ptr<Graph>> bodies;
};

struct Work {
  std::shared_ptr<Context> context;  // whose engines do it; null: its stream's
  std::variant<EmptyWork, KernelWork, CopyWork, FillWork, HostWork, ChildWork, EventWork, AllocWork,
               FreeWork, ConditionalWork>
      what;
};

CUgraphNodeType TypeOf(const Work& work);
// Whether it allocates or frees memory.
bool IsOfMemory(const Work& work);
// The graphs inside: a child, or the bodies of a conditional node.
std::vector<std::shared_ptr<Graph>> GraphsIn(const Work& work);
// The task that does it. A child, a conditional node, a record and a wait are not one task, and
// memory is allocated and freed by the launch: they give an empty one.
Task TaskFor(const Context& context, Work work);

struct GraphNode {
  CUgraphNode handle = nullptr;
  CUgraphNode original = nullptr;  // in a clone: the node it was made from
  Graph* graph = nullptr;
  Work work;
  bool enabled = true;
  std::vector<GraphNode*> before;
  std::vector<GraphNode*> after;
  std::vector<CUgraph> shown_bodies;  // of a conditional node, as the program was told
  std::vector<void*> shown_params;    // what the program was told of a kernel's parameters
};

class Graph {
 public:
  // One that is not visible has no handles: it is inside an instantiated graph.
  static std::shared_ptr<Graph> New(bool visible);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  CUgraph handle() const { return handle_; }
  bool embedded = false;                               // belongs to a node of another graph
  bool body = false;                                   // of a conditional node
  std::vector<std::shared_ptr<Condition>> conditions;  // that were made for this graph
  std::weak_ptr<GraphExec> instance;                   // of one that has memory
  bool capturing = false;  // grows by a capture, and loses nothing meanwhile

  // REQUIRES: `before` are nodes of this graph, each once.
  GraphNode* Add(Work work, const std::vector<GraphNode*>& before);
  void Remove(GraphNode* node);
  static bool HasEdge(const GraphNode& from, const GraphNode& to);
  static void Connect(GraphNode* from, GraphNode* to);
  static void Disconnect(GraphNode* from, GraphNode* to);

  // In the order in which they were added.
  const std::vector<std::shared_ptr<GraphNode>>& nodes() const { return nodes_; }
  // Each after those it depends on, else as they were added. A cycle and what depends on it are
  // left out.
  std::vector<GraphNode*> Sorted() const;
  // With child graphs of its own, its nodes in sorted order; null if there is a cycle.
  std::shared_ptr<Graph> Clone(bool visible) const;
  // Whether it allocates or frees memory, which its children do not. Then it has one copy at a
  // time, and only grows.
  bool has_memory() const;
  // Whether it has one copy at a time for that reason, or since it has conditional nodes.
  bool is_single() const;
  bool Frees(const GraphMemory::Block* block) const;

  // The node made from `original`; null if there is none.
  GraphNode* FindClone(CUgraphNode original) const;

  // Destroys a visible graph that its program does not need any more.
  static void Forget(const std::shared_ptr<Graph>& graph);

 private:
  Graph() = default;
  static void ForgetChild(const Work& work);
  static bool CloneGraphsIn(Work* work, bool visible);

  CUgraph handle_ = nullptr;
  std::vector<std::shared_ptr<GraphNode>> nodes_;
  std::unordered_map<CUgraphNode, GraphNode*> clones_;
};

}  // namespace tandem::soft
