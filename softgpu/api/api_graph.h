// What the entry points of graphs and captures share: from handles to graphs and nodes.
//
// Threading: under the driver's graphs_mutex.
#pragma once

#include <memory>
#include <vector>

#include "softgpu/driver/driver.h"

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

// Gives a node other parameters, of the same kind; a context that is not named stays.
// REQUIRES: graphs_mutex is not held.
CUresult SetWork(CUgraphNode node, Work work);
CUresult SetExecWork(CUgraphExec exec, CUgraphNode original, Work work);

// What the structures that describe nodes ask for, checked and copied.
CUresult KernelWorkOf(const CUDA_KERNEL_NODE_PARAMS_v1* params, Work* work);
CUresult KernelWorkOf(const CUDA_KERNEL_NODE_PARAMS_v2* params, Work* work);
CUresult CopyWorkOf(const CUDA_MEMCPY3D* params, CUcontext context, Work* work);
CUresult FillWorkOf(const CUDA_MEMSET_NODE_PARAMS* params, CUcontext context, Work* work);
CUresult HostWorkOf(const CUDA_HOST_NODE_PARAMS* params, Work* work);
CUresult EventWorkOf(CUevent event, bool record, Work* work);
// Of a node of any type but those that allocate or are a graph.
CUresult WorkOf(const CUgraphNodeParams& params, Work* work);

// What a node does that allocates memory, or frees it; the address is settled here.
// REQUIRES: the parameters were checked.
CUresult AllocWorkOf(const std::shared_ptr<Context>& context, Device* device,
                     const CUDA_MEM_ALLOC_NODE_PARAMS& params, Work* work);
CUresult FreeWorkOf(CUdeviceptr pointer, Work* work);
// Whether a graph may get a node of such work: one that belongs to a node has no memory, and none
// frees the same memory twice.
CUresult CheckMemory(const Graph& graph, const Work& work);

// All of them have to be nodes of the graph, each named once.
CUresult FindNodes(const Graph& graph, const CUgraphNode* handles, size_t count,
                   std::vector<GraphNode*>* nodes);

// Edges that carry anything but order are not known here.
CUresult CheckEdges(const CUgraphEdgeData* edges, size_t count);

}  // namespace tandem::soft
