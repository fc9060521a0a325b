// What the entry points of graphs and captures share: from handles to graphs and nodes.
//
// Threading: under the driver's graphs_mutex.
#pragma once

#include <memory>
#include <vector>

#include "src/softgpu/driver.h"

namespace tandem::soft {

inline CUresult FindGraph(CUgraph handle, std::shared_ptr<Graph>* graph) {
  *graph = TheDriver().graphs.Find(handle);
  return *graph == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

inline CUresult FindNode(CUgraphNode handle, std::shared_ptr<GraphNode>* node) {
  *node = TheDriver().graph_nodes.Find(handle);
  return *node == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// All of them have to be nodes of the graph, each named once.
CUresult FindNodes(const Graph& graph, const CUgraphNode* handles, size_t count,
                   std::vector<GraphNode*>* nodes);

// Edges that carry anything but order are not known here.
CUresult CheckEdges(const CUgraphEdgeData* edges, size_t count);

}  // namespace tandem::soft
