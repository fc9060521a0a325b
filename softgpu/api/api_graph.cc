// Entry points: graphs and their shape.
#include "softgpu/api/api_graph.h"

#include <algorithm>
#include <set>
#include <utility>

#include "src/cuda/driver_api.h"

namespace tandem::soft {
namespace {

// Answers in the manner of all these calls: without a place the count alone; with one as many as
// fit, and null for the rest of it.
CUresult Answer(const std::vector<CUgraphNode>& nodes, CUgraphNode* out, size_t* count) {
  if (out == nullptr) {
    *count = nodes.size();
    return CUDA_SUCCESS;
  }
  for (size_t i = 0; i < *count; ++i) out[i] = i < nodes.size() ? nodes[i] : nullptr;
  *count = std::min(*count, nodes.size());
  return CUDA_SUCCESS;
}

template <typename Nodes>
std::vector<CUgraphNode> HandlesOf(const Nodes& nodes) {
  std::vector<CUgraphNode> handles;
  for (const auto& node : nodes) handles.push_back(node->handle);
  return handles;
}

// Both ends of the edges that a call names.
CUresult FindEdges(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to, size_t count,
                   bool there, std::vector<std::pair<GraphNode*, GraphNode*>>* edges) {
  std::shared_ptr<Graph> graph;
  CU_TRY(FindGraph(handle, &graph));
  if (count > 0 && (from == nullptr || to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::set<std::pair<GraphNode*, GraphNode*>> seen;
  for (size_t i = 0; i < count; ++i) {
    std::vector<GraphNode*> first, second;
    CU_TRY(FindNodes(*graph, from + i, 1, &first));
    CU_TRY(FindNodes(*graph, to + i, 1, &second));
    const std::pair edge{first[0], second[0]};
    if (edge.first == edge.second || !seen.insert(edge).second ||
        Graph::HasEdge(*edge.first, *edge.second) != there) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    edges->push_back(edge);
  }
  if (there && graph->has_memory()) return CUDA_ERROR_NOT_SUPPORTED;
  return there && graph->capturing && count > 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult Neighbours(CUgraphNode handle, CUgraphNode* nodes, size_t* count, bool before) {
  CU_TRY(Ready());
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(TheDriver().graphs_mutex);
  std::shared_ptr<GraphNode> node;
  CU_TRY(FindNode(handle, &node));
  return Answer(HandlesOf(before ? node->before : node->after), nodes, count);
}

void ClearEdges(CUgraphEdgeData* edges, const size_t* count) {
  if (edges != nullptr) std::fill_n(edges, *count, CUgraphEdgeData{});
}

}  // namespace

CUresult FindNodes(const Graph& graph, const CUgraphNode* handles, size_t count,
                   std::vector<GraphNode*>* nodes) {
  if (count > 0 && handles == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::set<CUgraphNode> seen;
  for (size_t i = 0; i < count; ++i) {
    std::shared_ptr<GraphNode> node;
    CU_TRY(FindNode(handles[i], &node));
    if (node->graph != &graph || !seen.insert(handles[i]).second) return CUDA_ERROR_INVALID_VALUE;
    nodes->push_back(node.get());
  }
  return CUDA_SUCCESS;
}

CUresult CheckEdges(const CUgraphEdgeData* edges, size_t count) {
  for (size_t i = 0; edges != nullptr && i < count; ++i) {
    const CUgraphEdgeData& edge = edges[i];
    const bool rest = std::ranges::any_of(edge.reserved, [](unsigned char c) { return c != 0; });
    if (rest || edge.from_port != 0 || edge.to_port != 0 || edge.type != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuGraphCreate(CUgraph* graph, unsigned int flags) noexcept {
  CU_TRY(Ready());
  if (graph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(TheDriver().graphs_mutex);
  *graph = Graph::New(true)->handle();
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph handle) noexcept {
  CU_TRY(Ready());
  MutexLock lock(TheDriver().graphs_mutex);
  std::shared_ptr<Graph> graph;
  CU_TRY(FindGraph(handle, &graph));
  if (graph->embedded || graph->capturing) return CUDA_ERROR_INVALID_VALUE;
  Graph::Forget(graph);
  return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph* clone, CUgraph handle) noexcept {
  CU_TRY(Ready());
  if (clone == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(TheDriver().graphs_mutex);
  std::shared_ptr<Graph> graph;
  CU_TRY(FindGraph(handle, &graph));
  if (graph->is_single()) return CUDA_ERROR_NOT_SUPPORTED;
  const auto made = graph->Clone(true);
  if (made == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *clone = made->handle();
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode* found, CUgraphNode original, CUgraph clone) noexcept {
  CU_TRY(Ready());
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(TheDriver().graphs_mutex);
  std::shared_ptr<Graph> graph;
  CU_TRY(FindGraph(clone, &graph));
  const GraphNode* node = graph->FindClone(original);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *found = node->handle;
  return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) noexcept {
  CU_TRY(Ready());
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(TheDriver().graphs_mutex);
  std::shared_ptr<Graph> graph;
  CU_TRY(FindGraph(handle, &graph));
  return Answer(HandlesOf(graph->nodes()), nodes, count);
}

CUresult cuGraphGetRootNodes(CUgraph handle, CUgraphNode* nodes, size_t* count) noexcept {
  CU_TRY(Ready());
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(TheDriver().graphs_mutex);
  std::shared_ptr<Graph> graph;
  CU_TRY(FindGraph(handle, &graph));
  std::vector<CUgraphNode> roots;
  for (const auto& node : graph->nodes()) {
    if (node->before.empty()) roots.push_back(node->handle);
  }
  return Answer(roots, nodes, count);
}

CUresult cuGraphGetEdges(CUgraph handle, CUgraphNode* from, CUgraphNode* to,
                         size_t* count) noexcept {
  CU_TRY(Ready());
  if (count == nullptr || (from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(TheDriver().graphs_mutex);
  std::shared_ptr<Graph> graph;
  CU_TRY(FindGraph(handle, &graph));
  std::vector<CUgraphNode> starts, ends;
  for (const auto& node : graph->nodes()) {
    for (const GraphNode* next : node->after) {
      starts.push_back(node->handle);
      ends.push_back(next->handle);
    }
  }
  size_t room = *count;
  CU_TRY(Answer(starts, from, &room));
  return Answer(ends, to, count);
}

CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to,
                            CUgraphEdgeData* edges, size_t* count) noexcept {
  CU_TRY(cuGraphGetEdges(graph, from, to, count));
  if (from != nullptr) ClearEdges(edges, count);
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) noexcept {
  CU_TRY(Ready());
  if (type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(TheDriver().graphs_mutex);
  std::shared_ptr<GraphNode> node;
  CU_TRY(FindNode(handle, &node));
  *type = TypeOf(node->work);
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* nodes, size_t* count) noexcept {
  return Neighbours(node, nodes, count, true);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode* nodes, CUgraphEdgeData* edges,
                                       size_t* count) noexcept {
  CU_TRY(Neighbours(node, nodes, count, true));
  if (nodes != nullptr) ClearEdges(edges, count);
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* nodes,
                                      size_t* count) noexcept {
  return Neighbours(node, nodes, count, false);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode* nodes,
                                         CUgraphEdgeData* edges, size_t* count) noexcept {
  CU_TRY(Neighbours(node, nodes, count, false));
  if (nodes != nullptr) ClearEdges(edges, count);
  return CUDA_SUCCESS;
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                size_t count) noexcept {
  CU_TRY(Ready());
  MutexLock lock(TheDriver().graphs_mutex);
  std::vector<std::pair<GraphNode*, GraphNode*>> edges;
  CU_TRY(FindEdges(graph, from, to, count, false, &edges));
  for (const auto& [first, second] : edges) Graph::Connect(first, second);
  return CUDA_SUCCESS;
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* edges, size_t count) noexcept {
  CU_TRY(CheckEdges(edges, count));
  return cuGraphAddDependencies(graph, from, to, count);
}

CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   size_t count) noexcept {
  CU_TRY(Ready());
  MutexLock lock(TheDriver().graphs_mutex);
  std::vector<std::pair<GraphNode*, GraphNode*>> edges;
  CU_TRY(FindEdges(graph, from, to, count, true, &edges));
  for (const auto& [first, second] : edges) Graph::Disconnect(first, second);
  return CUDA_SUCCESS;
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                      const CUgraphEdgeData* edges, size_t count) noexcept {
  CU_TRY(CheckEdges(edges, count));
  return cuGraphRemoveDependencies(graph, from, to, count);
}

CUresult cuGraphDestroyNode(CUgraphNode handle) noexcept {
  CU_TRY(Ready());
  MutexLock lock(TheDriver().graphs_mutex);
  std::shared_ptr<GraphNode> node;
  CU_TRY(FindNode(handle, &node));
  if (node->graph->capturing) return CUDA_ERROR_INVALID_VALUE;
  if (node->graph->has_memory()) return CUDA_ERROR_NOT_SUPPORTED;
  node->graph->Remove(node.get());
  return CUDA_SUCCESS;
}
