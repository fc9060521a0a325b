#include "softgpu/driver/graph.h"

#include <algorithm>
#include <map>

#include "softgpu/driver/driver.h"

namespace tandem::soft {
namespace {

CUresult RunCopy(const Hardware& hardware, const CopyWork& work) {
  if (work.to_device && work.from_device) return CopyOnDevice(hardware, work.copy);
  if (work.to_device) return CopyOverBus(hardware, Direction::kToDevice, work.copy);
  if (work.from_device) return CopyOverBus(hardware, Direction::kToHost, work.copy);
  return CopyOnHost(hardware, work.copy);
}

Task CopyTask(const Hardware& hardware, const CopyWork& work) {
  Task task;
  // Copies inside the host are not with the host functions: one of them may take for ever.
  task.engine = !work.to_device    ? EngineKind::kToHost
                : work.from_device ? EngineKind::kCompute
                                   : EngineKind::kToDevice;
  task.run = [&hardware, work] { return RunCopy(hardware, work); };
  return task;
}

Task HostTask(const HostWork& work) {
  Task task;
  task.engine = EngineKind::kHost;
  task.run = [work] {
    const HostFunctionScope scope;
    work.function(work.data);
    return CUDA_SUCCESS;
  };
  return task;
}

}  // namespace

CUgraphNodeType TypeOf(const Work& work) {
  if (const auto* event = std::get_if<EventWork>(&work.what)) {
    return event->record ? CU_GRAPH_NODE_TYPE_EVENT_RECORD : CU_GRAPH_NODE_TYPE_WAIT_EVENT;
  }
  if (std::holds_alternative<KernelWork>(work.what)) return CU_GRAPH_NODE_TYPE_KERNEL;
  if (std::holds_alternative<CopyWork>(work.what)) return CU_GRAPH_NODE_TYPE_MEMCPY;
  if (std::holds_alternative<FillWork>(work.what)) return CU_GRAPH_NODE_TYPE_MEMSET;
  if (std::holds_alternative<HostWork>(work.what)) return CU_GRAPH_NODE_TYPE_HOST;
  if (std::holds_alternative<ChildWork>(work.what)) return CU_GRAPH_NODE_TYPE_GRAPH;
  if (std::holds_alternative<AllocWork>(work.what)) return CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  if (std::holds_alternative<FreeWork>(work.what)) return CU_GRAPH_NODE_TYPE_MEM_FREE;
  if (std::holds_alternative<ConditionalWork>(work.what)) return CU_GRAPH_NODE_TYPE_CONDITIONAL;
  return CU_GRAPH_NODE_TYPE_EMPTY;
}

std::vector<std::shared_ptr<Graph>> GraphsIn(const Work& work) {
  if (const auto* child = std::get_if<ChildWork>(&work.what)) return {child->graph};
  const auto* conditional = std::get_if<ConditionalWork>(&work.what);
  return conditional == nullptr ? std::vector<std::shared_ptr<Graph>>() : conditional->bodies;
}

bool IsOfMemory(const Work& work) {
  return std::holds_alternative<AllocWork>(work.what) ||
         std::holds_alternative<FreeWork>(work.what);
}

Task TaskFor(const Context& context, Work work) {
  const Hardware& hardware = context.device->hardware();
  Task task;
  if (auto* kernel = std::get_if<KernelWork>(&work.what)) {
    task.engine = EngineKind::kCompute;
    kernel->launch.textures = TheDriver().textures.Current();
    // The module may be unloaded before its kernel is done.
    task.run = [&hardware, program_kept = kernel->function->program,
                launch = std::move(kernel->launch)] { return RunLaunch(hardware, launch); };
  } else if (const auto* copy = std::get_if<CopyWork>(&work.what)) {
    task = CopyTask(hardware, *copy);
  } else if (const auto* fill = std::get_if<FillWork>(&work.what)) {
    task.engine = EngineKind::kCompute;
    task.run = [&hardware, fill = fill->fill] { return FillOnDevice(hardware, fill); };
  } else if (const auto* host = std::get_if<HostWork>(&work.what)) {
    task = HostTask(*host);
  }
  return task;
}

std::shared_ptr<Graph> Graph::New(bool visible) {
  auto graph = std::shared_ptr<Graph>(new Graph());
  if (visible) graph->handle_ = TheDriver().graphs.Insert(graph);
  return graph;
}

Graph::~Graph() {
  if (handle_ == nullptr) return;
  for (const auto& node : nodes_) {
    TheDriver().graph_nodes.Take(node->handle);
    ForgetChild(node->work);
  }
}

void Graph::Forget(const std::shared_ptr<Graph>& graph) {
  TheDriver().graphs.Take(graph->handle_);
}

void Graph::ForgetChild(const Work& work) {
  for (const auto& graph : GraphsIn(work)) Forget(graph);
}

GraphNode* Graph::Add(Work work, const std::vector<GraphNode*>& before) {
  auto node = std::make_shared<GraphNode>();
  node->graph = this;
  node->work = std::move(work);
  if (handle_ != nullptr) node->handle = TheDriver().graph_nodes.Insert(node);
  nodes_.push_back(node);
  for (GraphNode* from : before) Connect(from, node.get());
  return node.get();
}

void Graph::Remove(GraphNode* node) {
  while (!node->before.empty()) Disconnect(node->before.back(), node);
  while (!node->after.empty()) Disconnect(node, node->after.back());
  TheDriver().graph_nodes.Take(node->handle);
  ForgetChild(node->work);
  std::erase_if(clones_, [&](const auto& entry) { return entry.second == node; });
  std::erase_if(nodes_, [&](const auto& other) { return other.get() == node; });
}

bool Graph::HasEdge(const GraphNode& from, const GraphNode& to) {
  return std::ranges::find(from.after, &to) != from.after.end();
}

void Graph::Connect(GraphNode* from, GraphNode* to) {
  from->after.push_back(to);
  to->before.push_back(from);
}

void Graph::Disconnect(GraphNode* from, GraphNode* to) {
  std::erase(from->after, to);
  std::erase(to->before, from);
}

std::vector<GraphNode*> Graph::Sorted() const {
  std::unordered_map<const GraphNode*, size_t> place;
  std::vector<size_t> missing(nodes_.size());
  std::map<size_t, GraphNode*> ready;  // by place
  for (size_t i = 0; i < nodes_.size(); ++i) {
    place[nodes_[i].get()] = i;
    missing[i] = nodes_[i]->before.size();
    if (missing[i] == 0) ready[i] = nodes_[i].get();
  }
  std::vector<GraphNode*> sorted;
  while (!ready.empty()) {
    GraphNode* node = ready.begin()->second;
    ready.erase(ready.begin());
    sorted.push_back(node);
    for (GraphNode* next : node->after) {
      const size_t i = place.at(next);
      if (--missing[i] == 0) ready[i] = next;
    }
  }
  return sorted;
}

// False if one of them has a cycle.
bool Graph::CloneGraphsIn(Work* work, bool visible) {
  const auto clone = [visible](std::shared_ptr<Graph>* graph) {
    const bool body = (*graph)->body;
    *graph = (*graph)->Clone(visible);
    if (*graph == nullptr) return false;
    (*graph)->embedded = true;
    (*graph)->body = body;
    return true;
  };
  if (auto* child = std::get_if<ChildWork>(&work->what)) return clone(&child->graph);
  auto* conditional = std::get_if<ConditionalWork>(&work->what);
  return conditional == nullptr ||
         std::ranges::all_of(conditional->bodies, [&](auto& body) { return clone(&body); });
}

std::shared_ptr<Graph> Graph::Clone(bool visible) const {
  const std::vector<GraphNode*> sorted = Sorted();
  if (sorted.size() != nodes_.size()) return nullptr;
  auto clone = New(visible);
  clone->conditions = conditions;
  std::unordered_map<const GraphNode*, GraphNode*> made;
  for (const GraphNode* node : sorted) {
    Work work = node->work;
    if (!CloneGraphsIn(&work, visible)) {
      if (visible) Forget(clone);
      return nullptr;
    }
    std::vector<GraphNode*> before;
    for (const GraphNode* from : node->before) before.push_back(made.at(from));
    GraphNode* copy = clone->Add(std::move(work), before);
    // What an instantiated graph is made from may itself be a clone inside one.
    copy->original = node->handle != nullptr ? node->handle : node->original;
    copy->enabled = node->enabled;
    clone->clones_[copy->original] = copy;
    made[node] = copy;
  }
  return clone;
}

bool Graph::has_memory() const {
  return std::ranges::any_of(nodes_, [](const auto& node) { return IsOfMemory(node->work); });
}

bool Graph::is_single() const {
  return has_memory() || std::ranges::any_of(nodes_, [](const auto& node) {
           return std::holds_alternative<ConditionalWork>(node->work.what);
         });
}

bool Graph::Frees(const GraphMemory::Block* block) const {
  return std::ranges::any_of(nodes_, [&](const auto& node) {
    const auto* work = std::get_if<FreeWork>(&node->work.what);
    return work != nullptr && work->block.get() == block;
  });
}

GraphNode* Graph::FindClone(CUgraphNode original) const {
  const auto found = clones_.find(original);
  return found == clones_.end() ? nullptr : found->second;
}

}  // namespace tandem::soft
