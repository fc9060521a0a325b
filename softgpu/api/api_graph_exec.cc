// Entry points: instantiated graphs.
#include "softgpu/api/api_graph.h"
#include "src/cuda/driver_api.h"

namespace tandem::soft {
namespace {

constexpr cuuint64_t kInstantiateFlags = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                         CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
                                         CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

CUresult Instantiate(CUgraphExec* out, CUgraph handle, cuuint64_t flags) {
  CU_TRY(Ready());
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if ((flags & ~kInstantiateFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(TheDriver().graphs_mutex);
  std::shared_ptr<Graph> graph;
  CU_TRY(FindGraph(handle, &graph));
  if (graph->capturing || !graph->instance.expired()) return CUDA_ERROR_INVALID_VALUE;
  auto exec = std::make_shared<GraphExec>();
  exec->graph = graph->Clone(false);
  if (exec->graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  exec->flags = flags;
  if (graph->is_single()) graph->instance = exec;
  *out = TheDriver().graph_execs.Insert(std::move(exec));
  return CUDA_SUCCESS;
}

CUresult InstantiateWithLog(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log,
                            size_t log_bytes) {
  const CUresult result = Instantiate(exec, graph, 0);
  if (error_node != nullptr) *error_node = nullptr;
  if (log != nullptr && log_bytes > 0) *log = 0;
  return result;
}

CUresult FindExec(CUgraphExec handle, std::shared_ptr<GraphExec>* exec) {
  CU_TRY(Ready());
  *exec = TheDriver().graph_execs.Find(handle);
  return *exec == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult ExecUpdate(CUgraphExec exec_handle, CUgraph graph_handle,
                    CUgraphExecUpdateResultInfo* info) {
  std::shared_ptr<GraphExec> exec;
  *info = {CU_GRAPH_EXEC_UPDATE_ERROR, nullptr, nullptr};
  CU_TRY(FindExec(exec_handle, &exec));
  MutexLock lock(TheDriver().graphs_mutex);
  std::shared_ptr<Graph> graph;
  CU_TRY(FindGraph(graph_handle, &graph));
  *info = Update(*exec->graph, *graph, exec->flags);
  return info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS
                                                      : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

// The stream that a launch is for.
CUresult FindTarget(CUgraphExec exec_handle, CUstream handle, std::shared_ptr<GraphExec>* exec,
                    std::shared_ptr<Context>* context, std::shared_ptr<Stream>* stream) {
  std::shared_ptr<Context> current;
  CU_TRY(HealthyContext(&current));
  CU_TRY(FindExec(exec_handle, exec));
  return FindStream(current, handle, context, stream);
}

// A node that may be disabled, and the graph that it is in.
CUresult FindExecNode(CUgraphExec handle, CUgraphNode original, std::shared_ptr<GraphExec>* exec,
                      GraphNode** node) REQUIRES_LOCK(TheDriver().graphs_mutex) {
  CU_TRY(FindExec(handle, exec));
  *node = (*exec)->graph->FindClone(original);
  if (*node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUgraphNodeType type = TypeOf((*node)->work);
  const bool can = type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
                   type == CU_GRAPH_NODE_TYPE_MEMSET;
  return can ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace
}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuGraphInstantiate(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log,
                            size_t log_bytes) noexcept {
  return InstantiateWithLog(exec, graph, error_node, log, log_bytes);
}

CUresult cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log,
                               size_t log_bytes) noexcept {
  return InstantiateWithLog(exec, graph, error_node, log, log_bytes);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph,
                                     unsigned long long flags) noexcept {
  return Instantiate(exec, graph, flags);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* params) noexcept {
  CU_TRY(Ready());
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  params->hErrNode_out = nullptr;
  params->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
  if ((params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) {
    std::shared_ptr<Context> current, context;
    std::shared_ptr<Stream> stream;
    CU_TRY(HealthyContext(&current));
    CU_TRY(FindStream(current, params->hUploadStream, &context, &stream));
  }
  const CUresult result = Instantiate(exec, graph, params->flags);
  if (result == CUDA_SUCCESS) params->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  return result;
}

CUresult cuGraphExecDestroy(CUgraphExec handle) noexcept {
  CU_TRY(Ready());
  const auto exec = TheDriver().graph_execs.Take(handle);
  return exec == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t* flags) noexcept {
  std::shared_ptr<GraphExec> exec;
  CU_TRY(FindExec(handle, &exec));
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = exec->flags;
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) noexcept {
  std::shared_ptr<GraphExec> exec;
  std::shared_ptr<Context> context;
  std::shared_ptr<Stream> stream;
  CU_TRY(FindTarget(handle, stream_handle, &exec, &context, &stream));
  CU_TRY(RefuseIfCaptured(*stream));
  return Launch(exec, context, stream);
}

// There is nothing that a launch would have to bring to the device first.
CUresult cuGraphUpload(CUgraphExec handle, CUstream stream_handle) noexcept {
  std::shared_ptr<GraphExec> exec;
  std::shared_ptr<Context> context;
  std::shared_ptr<Stream> stream;
  CU_TRY(FindTarget(handle, stream_handle, &exec, &context, &stream));
  return RefuseIfCaptured(*stream);
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* error_node,
                           CUgraphExecUpdateResult* outcome) noexcept {
  CUgraphExecUpdateResultInfo info;
  const CUresult result = ExecUpdate(exec, graph, &info);
  if (error_node != nullptr) *error_node = info.errorNode;
  if (outcome != nullptr) *outcome = info.result;
  return result;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                              CUgraphExecUpdateResultInfo* info) noexcept {
  CU_TRY(Ready());
  if (info == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return ExecUpdate(exec, graph, info);
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec handle, CUgraphNode original,
                                            CUgraph child) noexcept {
  std::shared_ptr<GraphExec> exec;
  CU_TRY(FindExec(handle, &exec));
  MutexLock lock(TheDriver().graphs_mutex);
  std::shared_ptr<Graph> graph;
  CU_TRY(FindGraph(child, &graph));
  GraphNode* node = exec->graph->FindClone(original);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto* work = std::get_if<ChildWork>(&node->work.what);
  if (work == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Update(*work->graph, *graph, exec->flags).result == CU_GRAPH_EXEC_UPDATE_SUCCESS
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec handle, CUgraphNode original,
                               unsigned int enabled) noexcept {
  CU_TRY(Ready());
  std::shared_ptr<GraphExec> exec;
  MutexLock lock(TheDriver().graphs_mutex);
  GraphNode* node = nullptr;
  CU_TRY(FindExecNode(handle, original, &exec, &node));
  node->enabled = enabled != 0;
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec handle, CUgraphNode original,
                               unsigned int* enabled) noexcept {
  CU_TRY(Ready());
  if (enabled == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<GraphExec> exec;
  MutexLock lock(TheDriver().graphs_mutex);
  GraphNode* node = nullptr;
  CU_TRY(FindExecNode(handle, original, &exec, &node));
  *enabled = node->enabled ? 1 : 0;
  return CUDA_SUCCESS;
}
