// Entry points: nodes of graphs, what they do, and changing that in a graph or an instantiated one.
#include <cstring>

#include "softgpu/api/api_graph.h"
#include "softgpu/driver/launch.h"
#include "softgpu/driver/submit.h"
#include "src/cuda/driver_api.h"

namespace tandem::soft {

CUresult AddNode(CUgraphNode* out, CUgraph handle, const CUgraphNode* before, size_t count,
                 Work work) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(TheDriver().graphs_mutex);
  std::shared_ptr<Graph> graph;
  std::vector<GraphNode*> nodes;
  CU_TRY(FindGraph(handle, &graph));
  CU_TRY(FindNodes(*graph, before, count, &nodes));
  CU_TRY(CheckMemory(*graph, work));
  *out = graph->Add(std::move(work), nodes)->handle;
  return CUDA_SUCCESS;
}

namespace {

// What a node keeps when its parameters change: they do not name its attributes.
CUresult Keep(const Work& now, Work* work) {
  if (work->context == nullptr) work->context = now.context;
  const auto* before = std::get_if<KernelWork>(&now.what);
  auto* kernel = std::get_if<KernelWork>(&work->what);
  if (before == nullptr || kernel == nullptr) return CUDA_SUCCESS;
  kernel->priority = before->priority;
  kernel->hints = before->hints;
  if (!before->launch.cooperative) return CUDA_SUCCESS;
  return MakeCooperative(*kernel->function, &kernel->launch);
}

}  // namespace

CUresult SetWork(CUgraphNode handle, Work work) {
  MutexLock lock(TheDriver().graphs_mutex);
  std::shared_ptr<GraphNode> node;
  CU_TRY(FindNode(handle, &node));
  if (TypeOf(node->work) != TypeOf(work)) return CUDA_ERROR_INVALID_VALUE;
  CU_TRY(Keep(node->work, &work));
  node->work = std::move(work);
  return CUDA_SUCCESS;
}

CUresult SetExecWork(CUgraphExec handle, CUgraphNode original, Work work) {
  CU_TRY(Ready());
  const auto exec = TheDriver().graph_execs.Find(handle);
  if (!exec) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(TheDriver().graphs_mutex);
  GraphNode* node = exec->graph->FindClone(original);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CU_TRY(Keep(node->work, &work));
  if (MayBecome(node->work, work) != CU_GRAPH_EXEC_UPDATE_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  node->work = std::move(work);
  return CUDA_SUCCESS;
}

namespace {

CUresult GetEvent(CUgraphNode handle, bool record, CUevent* event) {
  CU_TRY(Ready());
  if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(TheDriver().graphs_mutex);
  std::shared_ptr<GraphNode> node;
  const EventWork* work = nullptr;
  CU_TRY(GetWork(handle, &node, &work));
  if (work->record != record) return CUDA_ERROR_INVALID_VALUE;
  *event = work->handle;
  return CUDA_SUCCESS;
}

void ShowFunction(const KernelWork& work, CUDA_KERNEL_NODE_PARAMS_v1* params) {
  params->func = work.handle;
}

void ShowFunction(const KernelWork& work, CUDA_KERNEL_NODE_PARAMS_v2* params) {
  params->ctx = reinterpret_cast<CUcontext>(work.function->context->id);
  if (work.kernel != nullptr) {
    params->kern = work.kernel;
  } else {
    params->func = work.handle;
  }
}

// The pointers that the program gets lead to the node's own copy.
template <typename Params>
CUresult GetKernel(CUgraphNode handle, Params* params) {
  CU_TRY(Ready());
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(TheDriver().graphs_mutex);
  std::shared_ptr<GraphNode> node;
  const KernelWork* work = nullptr;
  CU_TRY(GetWork(handle, &node, &work));
  const ptx::Launch& launch = work->launch;
  node->shown_params.clear();
  for (const ptx::Param& param : launch.kernel->params) {
    node->shown_params.push_back(const_cast<uint8_t*>(launch.params.data()) + param.offset);
  }
  *params = Params{};
  ShowFunction(*work, params);
  params->gridDimX = launch.grid[0];
  params->gridDimY = launch.grid[1];
  params->gridDimZ = launch.grid[2];
  params->blockDimX = launch.block[0];
  params->blockDimY = launch.block[1];
  params->blockDimZ = launch.block[2];
  params->sharedMemBytes = launch.dynamic_shared_bytes;
  params->kernelParams = node->shown_params.empty() ? nullptr : node->shown_params.data();
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
                             size_t count) noexcept {
  CU_TRY(Ready());
  return AddNode(node, graph, before, count, {});
}

CUresult cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
                              size_t count, const CUDA_KERNEL_NODE_PARAMS_v1* params) noexcept {
  Work work;
  CU_TRY(KernelWorkOf(params, &work));
  return AddNode(node, graph, before, count, std::move(work));
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
                                 size_t count, const CUDA_KERNEL_NODE_PARAMS_v2* params) noexcept {
  Work work;
  CU_TRY(KernelWorkOf(params, &work));
  return AddNode(node, graph, before, count, std::move(work));
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* params) noexcept {
  return GetKernel(node, params);
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node,
                                       CUDA_KERNEL_NODE_PARAMS_v2* params) noexcept {
  return GetKernel(node, params);
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode node,
                                    const CUDA_KERNEL_NODE_PARAMS_v1* params) noexcept {
  Work work;
  CU_TRY(KernelWorkOf(params, &work));
  return SetWork(node, std::move(work));
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node,
                                       const CUDA_KERNEL_NODE_PARAMS_v2* params) noexcept {
  Work work;
  CU_TRY(KernelWorkOf(params, &work));
  return SetWork(node, std::move(work));
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS_v1* params) noexcept {
  Work work;
  CU_TRY(KernelWorkOf(params, &work));
  return SetExecWork(exec, node, std::move(work));
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS_v2* params) noexcept {
  Work work;
  CU_TRY(KernelWorkOf(params, &work));
  return SetExecWork(exec, node, std::move(work));
}

CUresult cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
                              size_t count, const CUDA_MEMCPY3D* params,
                              CUcontext context) noexcept {
  Work work;
  CU_TRY(CopyWorkOf(params, context, &work));
  return AddNode(node, graph, before, count, std::move(work));
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode handle, CUDA_MEMCPY3D* params) noexcept {
  CU_TRY(Ready());
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(TheDriver().graphs_mutex);
  std::shared_ptr<GraphNode> node;
  const CopyWork* work = nullptr;
  CU_TRY(GetWork(handle, &node, &work));
  *params = work->shown;
  return CUDA_SUCCESS;
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* params) noexcept {
  Work work;
  CU_TRY(CopyWorkOf(params, nullptr, &work));
  work.context = nullptr;
  return SetWork(node, std::move(work));
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMCPY3D* params, CUcontext context) noexcept {
  Work work;
  CU_TRY(CopyWorkOf(params, context, &work));
  return SetExecWork(exec, node, std::move(work));
}

CUresult cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
                              size_t count, const CUDA_MEMSET_NODE_PARAMS* params,
                              CUcontext context) noexcept {
  Work work;
  CU_TRY(FillWorkOf(params, context, &work));
  return AddNode(node, graph, before, count, std::move(work));
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode handle, CUDA_MEMSET_NODE_PARAMS* params) noexcept {
  CU_TRY(Ready());
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(TheDriver().graphs_mutex);
  std::shared_ptr<GraphNode> node;
  const FillWork* work = nullptr;
  CU_TRY(GetWork(handle, &node, &work));
  const Fill& fill = work->fill;
  *params = {fill.to.address,
             fill.to.pitch,
             fill.value,
             fill.element_bytes,
             fill.width / fill.element_bytes,
             fill.height};
  return CUDA_SUCCESS;
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node,
                                    const CUDA_MEMSET_NODE_PARAMS* params) noexcept {
  Work work;
  CU_TRY(FillWorkOf(params, nullptr, &work));
  work.context = nullptr;
  return SetWork(node, std::move(work));
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS* params,
                                        CUcontext context) noexcept {
  Work work;
  CU_TRY(FillWorkOf(params, context, &work));
  return SetExecWork(exec, node, std::move(work));
}

CUresult cuGraphAddHostNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
                            size_t count, const CUDA_HOST_NODE_PARAMS* params) noexcept {
  Work work;
  CU_TRY(HostWorkOf(params, &work));
  return AddNode(node, graph, before, count, std::move(work));
}

CUresult cuGraphHostNodeGetParams(CUgraphNode handle, CUDA_HOST_NODE_PARAMS* params) noexcept {
  CU_TRY(Ready());
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(TheDriver().graphs_mutex);
  std::shared_ptr<GraphNode> node;
  const HostWork* work = nullptr;
  CU_TRY(GetWork(handle, &node, &work));
  *params = {work->function, work->data};
  return CUDA_SUCCESS;
}

CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* params) noexcept {
  Work work;
  CU_TRY(HostWorkOf(params, &work));
  return SetWork(node, std::move(work));
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                      const CUDA_HOST_NODE_PARAMS* params) noexcept {
  Work work;
  CU_TRY(HostWorkOf(params, &work));
  return SetExecWork(exec, node, std::move(work));
}

CUresult cuGraphAddEventRecordNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
                                   size_t count, CUevent event) noexcept {
  Work work;
  CU_TRY(EventWorkOf(event, true, &work));
  return AddNode(node, graph, before, count, std::move(work));
}

CUresult cuGraphAddEventWaitNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
                                 size_t count, CUevent event) noexcept {
  Work work;
  CU_TRY(EventWorkOf(event, false, &work));
  return AddNode(node, graph, before, count, std::move(work));
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent* event) noexcept {
  return GetEvent(node, true, event);
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent* event) noexcept {
  return GetEvent(node, false, event);
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) noexcept {
  Work work;
  CU_TRY(EventWorkOf(event, true, &work));
  return SetWork(node, std::move(work));
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) noexcept {
  Work work;
  CU_TRY(EventWorkOf(event, false, &work));
  return SetWork(node, std::move(work));
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node,
                                            CUevent event) noexcept {
  Work work;
  CU_TRY(EventWorkOf(event, true, &work));
  return SetExecWork(exec, node, std::move(work));
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node,
                                          CUevent event) noexcept {
  Work work;
  CU_TRY(EventWorkOf(event, false, &work));
  return SetExecWork(exec, node, std::move(work));
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* out, CUgraph handle, const CUgraphNode* before,
                                  size_t count, CUgraph child_handle) noexcept {
  CU_TRY(Ready());
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(TheDriver().graphs_mutex);
  std::shared_ptr<Graph> graph, child;
  std::vector<GraphNode*> nodes;
  CU_TRY(FindGraph(handle, &graph));
  CU_TRY(FindNodes(*graph, before, count, &nodes));
  CU_TRY(FindGraph(child_handle, &child));
  if (child == graph) return CUDA_ERROR_INVALID_VALUE;
  if (child->is_single()) return CUDA_ERROR_NOT_SUPPORTED;
  const auto clone = child->Clone(true);
  if (clone == nullptr) return CUDA_ERROR_INVALID_VALUE;
  clone->embedded = true;
  *out = graph->Add({nullptr, ChildWork{clone}}, nodes)->handle;
  return CUDA_SUCCESS;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph* graph) noexcept {
  CU_TRY(Ready());
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(TheDriver().graphs_mutex);
  std::shared_ptr<GraphNode> node;
  const ChildWork* work = nullptr;
  CU_TRY(GetWork(handle, &node, &work));
  *graph = work->graph->handle();
  return CUDA_SUCCESS;
}
