// What the entry points of graphs and captures share: from handles to graphs and nodes.
//
// Threading: under the driver's graphs_mutex.
#pragma once

#include <memory>
#include <vector>

#include "softgpu/driver/driver.h"
#include "softgpu/driver/graph_params.h"

namespace tandem::soft {

inline CUresult FindGraph(CUgraph handle, std::shared_ptr<Graph>* graph) {
  *graph = TheDriver().graphs.Find(handle);
  return *graph == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

inline CUresult FindNode(CUgraphNode handle, std::shared_ptr<GraphNode>* node) {
  *node = TheDriver().graph_nodes.Find(handle);
  return *node == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// What a node does, if it is of that kind.
template <typename Kind>
CUresult GetWork(CUgraphNode handle, std::shared_ptr<GraphNode>* node, const Kind** work) {
  CU_TRY(FindNode(handle, node));
  *work = std::get_if<Kind>(&(*node)->work.what);
  return *work == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// Adds a node to a graph. REQUIRES: graphs_mutex is not held.
CUresult AddNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* before, size_t count,
                 Work work);

CUresult AddConditional(CUgraphNode* out, CUgraph graph, const CUgraphNode* before, size_t count,
                        CUDA_CONDITIONAL_NODE_PARAMS* params);

// Gives a node other parameters, of the same kind; a context that is not named stays.
// REQUIRES: graphs_mutex is not held.
CUresult SetWork(CUgraphNode node, Work work);
CUresult SetExecWork(CUgraphExec exec, CUgraphNode original, Work work);

// All of them have to be nodes of the graph, each named once.
CUresult FindNodes(const Graph& graph, const CUgraphNode* handles, size_t count,
                   std::vector<GraphNode*>* nodes);

// Edges that carry anything but order are not known here.
CUresult CheckEdges(const CUgraphEdgeData* edges, size_t count);

}  // namespace tandem::soft
