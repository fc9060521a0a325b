// Entry points: conditional nodes of graphs.
#include "softgpu/api/api_graph.h"
#include "src/cuda/driver_api.h"

namespace tandem::soft {
namespace {

constexpr unsigned int kMostBodies = 1 << 16;

bool ValidSize(CUgraphConditionalNodeType type, unsigned int size) {
  switch (type) {
    case CU_GRAPH_COND_TYPE_IF:
      return size == 1 || size == 2;
    case CU_GRAPH_COND_TYPE_WHILE:
      return size == 1;
    case CU_GRAPH_COND_TYPE_SWITCH:
      return size > 0 && size <= kMostBodies;
  }
  return false;
}

CUresult Allocate(const std::shared_ptr<Context>& context, Condition* condition) {
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  if (context->destroyed.load()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  condition->handle =
      memory.AllocateOn(context->device, context->id, sizeof(uint32_t), Heap::Use::kDriver);
  if (condition->handle == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *condition->value() = condition->launch_value;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult AddConditional(CUgraphNode* out, CUgraph handle, const CUgraphNode* before, size_t count,
                        CUDA_CONDITIONAL_NODE_PARAMS* params) {
  if (out == nullptr || !ValidSize(params->type, params->size)) return CUDA_ERROR_INVALID_VALUE;
  Driver& driver = TheDriver();
  MutexLock lock(driver.graphs_mutex);
  std::shared_ptr<Graph> graph;
  std::vector<GraphNode*> nodes;
  CU_TRY(FindGraph(handle, &graph));
  CU_TRY(FindNodes(*graph, before, count, &nodes));
  const auto found = driver.conditions.find(params->handle);
  const auto condition = found == driver.conditions.end() ? nullptr : found->second.lock();
  if (condition == nullptr || condition->used) return CUDA_ERROR_INVALID_VALUE;
  if (params->ctx != nullptr && params->ctx != HandleOf(condition->context)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ConditionalWork work = {condition, params->type, {}};
  std::vector<CUgraph> shown;
  for (unsigned int i = 0; i < params->size; ++i) {
    const auto body = Graph::New(true);
    body->embedded = body->body = true;
    work.bodies.push_back(body);
    shown.push_back(body->handle());
  }
  condition->used = true;
  GraphNode* const node = graph->Add({condition->context, std::move(work)}, nodes);
  node->shown_bodies = std::move(shown);
  params->phGraph_out = node->shown_bodies.data();
  *out = node->handle;
  return CUDA_SUCCESS;
}

}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* handle, CUgraph graph_handle,
                                        CUcontext context_handle, unsigned int launch_value,
                                        unsigned int flags) noexcept {
  std::shared_ptr<Context> context;
  if (context_handle == nullptr) {
    CU_TRY(HealthyContext(&context));
  } else {
    CU_TRY(Ready());
    context = TheDriver().FindLiving(context_handle);
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  }
  if (handle == nullptr || (flags & ~CU_GRAPH_COND_ASSIGN_DEFAULT) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Driver& driver = TheDriver();
  MutexLock lock(driver.graphs_mutex);
  std::shared_ptr<Graph> graph;
  CU_TRY(FindGraph(graph_handle, &graph));
  auto condition = std::make_shared<Condition>();
  condition->context = context;
  condition->launch_value = launch_value;
  condition->assigned = (flags & CU_GRAPH_COND_ASSIGN_DEFAULT) != 0;
  CU_TRY(Allocate(context, condition.get()));
  std::erase_if(driver.conditions, [](const auto& entry) { return entry.second.expired(); });
  driver.conditions[condition->handle] = condition;
  *handle = condition->handle;
  graph->conditions.push_back(std::move(condition));
  return CUDA_SUCCESS;
}
