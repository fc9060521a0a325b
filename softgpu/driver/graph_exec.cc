#include "softgpu/driver/graph_exec.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "softgpu/driver/conditional.h"
#include "softgpu/driver/driver.h"

namespace tandem::soft {
namespace {

// A graph with its children, laid out as one list of tasks.
class Layout {
 public:
  Layout(std::shared_ptr<Context> context, bool by_node_priority)
      : context_(std::move(context)), by_node_priority_(by_node_priority) {}

  struct Recording {
    size_t task;
    std::shared_ptr<Event> event;
    std::shared_ptr<Event::Record> record;
  };

  // Tells the tasks that end it: all that nothing in it comes after. Without nodes: `roots`.
  std::vector<size_t> Add(const Graph& graph, const std::vector<size_t>& roots);

  std::vector<GraphTask> tasks;
  std::vector<Recording> recordings;

 private:
  size_t AddNode(const GraphNode& node, std::vector<size_t> before);
  size_t Append(const std::shared_ptr<Context>& context, Task task, std::vector<size_t> before);
  Task EventTask(const EventWork& work);

  const std::shared_ptr<Context> context_;
  const bool by_node_priority_;
};

std::vector<size_t> Layout::Add(const Graph& graph, const std::vector<size_t>& roots) {
  std::vector<size_t> before = roots;
  if (auto assign = AssignTask(graph)) before = {Append(context_, std::move(*assign), roots)};
  std::unordered_map<const GraphNode*, size_t> placed;
  std::vector<size_t> ends;
  for (const auto& node : graph.nodes()) {  // a clone's nodes are sorted
    std::vector<size_t> earlier = node->before.empty() ? before : std::vector<size_t>();
    for (const GraphNode* from : node->before) earlier.push_back(placed.at(from));
    placed[node.get()] = AddNode(*node, std::move(earlier));
    if (node->after.empty()) ends.push_back(placed[node.get()]);
  }
  return graph.nodes().empty() ? before : ends;
}

size_t Layout::AddNode(const GraphNode& node, std::vector<size_t> before) {
  const std::shared_ptr<Context>& context = node.work.context ? node.work.context : context_;
  if (!node.enabled) return Append(context, Task(), std::move(before));
  if (const auto* child = std::get_if<ChildWork>(&node.work.what)) {
    return Append(context, Task(), Add(*child->graph, before));
  }
  if (const auto* conditional = std::get_if<ConditionalWork>(&node.work.what)) {
    const auto& owner = conditional->condition->context;
    return Append(owner, ConditionalTask(*conditional), std::move(before));
  }
  if (const auto* event = std::get_if<EventWork>(&node.work.what)) {
    return Append(context, EventTask(*event), std::move(before));
  }
  const size_t place = Append(context, TaskFor(*context, node.work), std::move(before));
  const auto* kernel = std::get_if<KernelWork>(&node.work.what);
  if (kernel != nullptr && by_node_priority_) tasks[place].priority = kernel->priority;
  return place;
}

size_t Layout::Append(const std::shared_ptr<Context>& context, Task task,
                      std::vector<size_t> before) {
  tasks.push_back({context->group, std::move(task), std::move(before), std::nullopt});
  return tasks.size() - 1;
}

// A wait is for the latest record there is at the launch, unless one that comes before it in the
// same launch takes that one's place: then it is for that.
Task Layout::EventTask(const EventWork& work) {
  const auto same = [&](const Recording& recording) { return recording.event == work.event; };
  Task task;
  if (!work.record) {
    const auto record = work.event->latest();
    const bool here = std::ranges::any_of(recordings, same);
    if (!here && record != nullptr && record->capture == nullptr) {
      task.after.push_back(record->where);
    }
    return task;
  }
  auto record = std::make_shared<Event::Record>();
  // Not the record itself: it holds the stream, whose queue holds the task.
  task.run = [weak = std::weak_ptr<Event::Record>(record)] {
    if (const auto reached = weak.lock()) reached->time_ns.store(TaskTime::cursor().ns);
    return CUDA_SUCCESS;
  };
  recordings.push_back({tasks.size(), work.event, std::move(record)});
  return task;
}

}  // namespace

namespace {

// What a launch does to the memory of graphs.
struct MemoryPlan {
  std::vector<std::shared_ptr<GraphMemory::Block>> freed;  // left so when it is done
  std::vector<Dependency> after;                           // which freed before what it allocates
};

// All of them or none. Each is allocated before the next is backed, which may take VRAM from what
// is not.
CUresult AllocateAll(const std::vector<GraphMemory::Block*>& blocks, Memory& memory,
                     MemoryPlan* plan) REQUIRES_LOCK(memory.mutex()) {
  GraphMemory& graphs = memory.graphs();
  std::vector<GraphMemory::Block*> fresh;
  for (GraphMemory::Block* block : blocks) {
    if (!memory.Manage(block->device, [&] { return graphs.Back(*block); })) {
      for (GraphMemory::Block* one : fresh) graphs.Free(*one, one->freed);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (block->freed) plan->after.push_back(*block->freed);
    if (!block->allocated) fresh.push_back(block);
    graphs.Allocate(*block);
  }
  return CUDA_SUCCESS;
}

// Allocates all that the graph allocates; what it frees again is still to be noted.
CUresult PlanMemory(const GraphExec& exec, Memory& memory, MemoryPlan* plan)
    REQUIRES_LOCK(memory.mutex()) {
  const bool again = (exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
  std::unordered_set<const GraphMemory::Block*> made;
  std::vector<GraphMemory::Block*> allocated;
  for (const auto& node : exec.graph->nodes()) {
    if (const auto* alloc = std::get_if<AllocWork>(&node->work.what)) {
      if (node->work.context->destroyed.load()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
      GraphMemory::Block& block = *alloc->block;
      if (block.allocated && !again) return CUDA_ERROR_INVALID_VALUE;
      made.insert(&block);
      allocated.push_back(&block);
    } else if (const auto* free = std::get_if<FreeWork>(&node->work.what)) {
      if (!free->block->allocated && !made.contains(free->block.get())) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      plan->freed.push_back(free->block);
    }
  }
  return AllocateAll(allocated, memory, plan);
}

}  // namespace

CUresult Launch(const std::shared_ptr<GraphExec>& exec, const std::shared_ptr<Context>& context,
                const std::shared_ptr<Stream>& stream) {
  Driver& driver = TheDriver();
  MutexLock launching(exec->launch_mutex);
  Layout layout(context, (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != 0);
  MemoryPlan memory_plan;
  {
    MutexLock lock(driver.graphs_mutex);
    if (exec->graph->has_memory()) {
      MutexLock memory_lock(driver.memory->mutex());
      CU_TRY(PlanMemory(*exec, *driver.memory, &memory_plan));
    }
    layout.Add(*exec->graph, {});
  }
  std::vector<Dependency> after = exec->last;
  after.insert(after.end(), memory_plan.after.begin(), memory_plan.after.end());
  const std::vector<Dependency> submitted =
      driver.scheduler.SubmitGraph(stream, std::move(layout.tasks), std::move(after));
  if (!memory_plan.freed.empty()) {
    MutexLock lock(driver.memory->mutex());
    for (const auto& block : memory_plan.freed) {
      driver.memory->graphs().Free(*block, submitted.back());
    }
  }
  exec->last = {submitted.back()};
  for (Layout::Recording& recording : layout.recordings) {
    recording.record->where = submitted[recording.task];
    recording.event->set_latest(std::move(recording.record));
  }
  return CUDA_SUCCESS;
}

namespace {

// Of fills of several rows only the place and the value may change.
bool HaveOneShape(const Fill& now, const Fill& then) {
  if (now.height == 1 && then.height == 1) return true;
  return now.width == then.width && now.height == then.height && now.to.pitch == then.to.pitch &&
         now.element_bytes == then.element_bytes;
}

}  // namespace

CUgraphExecUpdateResult MayBecome(const Work& now, const Work& then) {
  if (TypeOf(now) != TypeOf(then)) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
  if (const auto* kernel = std::get_if<KernelWork>(&now.what)) {
    return kernel->function->context == std::get<KernelWork>(then.what).function->context
               ? CU_GRAPH_EXEC_UPDATE_SUCCESS
               : CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
  }
  if (const auto* alloc = std::get_if<AllocWork>(&now.what)) {
    return alloc->block == std::get<AllocWork>(then.what).block
               ? CU_GRAPH_EXEC_UPDATE_SUCCESS
               : CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
  }
  if (const auto* free = std::get_if<FreeWork>(&now.what)) {
    return free->block == std::get<FreeWork>(then.what).block
               ? CU_GRAPH_EXEC_UPDATE_SUCCESS
               : CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
  }
  const bool transfers =
      std::holds_alternative<CopyWork>(now.what) || std::holds_alternative<FillWork>(now.what);
  if (transfers && now.context != then.context) {
    return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
  }
  if (const auto* conditional = std::get_if<ConditionalWork>(&now.what)) {
    return conditional->type == std::get<ConditionalWork>(then.what).type
               ? CU_GRAPH_EXEC_UPDATE_SUCCESS
               : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
  }
  if (const auto* fill = std::get_if<FillWork>(&now.what)) {
    return HaveOneShape(fill->fill, std::get<FillWork>(then.what).fill)
               ? CU_GRAPH_EXEC_UPDATE_SUCCESS
               : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
  }
  if (const auto* copy = std::get_if<CopyWork>(&now.what)) {
    const auto& other = std::get<CopyWork>(then.what);
    const bool same = copy->to_device == other.to_device && copy->from_device == other.from_device;
    if (!same) return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
  }
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

namespace {

using Places = std::unordered_map<const GraphNode*, size_t>;

Places PlacesOf(const std::vector<GraphNode*>& nodes) {
  Places places;
  for (size_t i = 0; i < nodes.size(); ++i) places[nodes[i]] = i;
  return places;
}

std::vector<size_t> Before(const GraphNode& node, const Places& places) {
  std::vector<size_t> before;
  for (const GraphNode* from : node.before) before.push_back(places.at(from));
  std::ranges::sort(before);
  return before;
}

// What a kernel keeps for as long as its graph is instantiated.
bool AttributesChange(const Work& now, const Work& then, cuuint64_t flags) {
  const auto* kernel = std::get_if<KernelWork>(&now.what);
  if (kernel == nullptr) return false;
  const auto& other = std::get<KernelWork>(then.what);
  const bool by_priority = (flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != 0;
  return kernel->launch.cooperative != other.launch.cooperative ||
         (by_priority && kernel->priority != other.priority);
}

CUgraphExecUpdateResult MayBecome(const Work& now, const Work& then, cuuint64_t flags) {
  const CUgraphExecUpdateResult result = MayBecome(now, then);
  if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS || !AttributesChange(now, then, flags)) return result;
  return CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
}

// Whether the first can be given the second's work; nothing is changed yet.
CUgraphExecUpdateResultInfo Compare(const Graph& exec, const Graph& graph, cuuint64_t flags) {
  const std::vector<GraphNode*> now = exec.Sorted(), then = graph.Sorted();
  if (now.size() != then.size() || then.size() != graph.nodes().size()) {
    return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, nullptr, nullptr};
  }
  const Places now_places = PlacesOf(now), then_places = PlacesOf(then);
  for (size_t i = 0; i < now.size(); ++i) {
    CUgraphExecUpdateResultInfo info = {MayBecome(now[i]->work, then[i]->work, flags),
                                        then[i]->handle, nullptr};
    if (info.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return info;
    if (Before(*now[i], now_places) != Before(*then[i], then_places)) {
      return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, then[i]->handle, nullptr};
    }
    const auto inside = GraphsIn(now[i]->work), others = GraphsIn(then[i]->work);
    if (inside.size() != others.size()) {
      return {CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, then[i]->handle, nullptr};
    }
    for (size_t k = 0; k < inside.size(); ++k) {
      info = Compare(*inside[k], *others[k], flags);
      if (info.result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return info;
    }
  }
  return {CU_GRAPH_EXEC_UPDATE_SUCCESS, nullptr, nullptr};
}

void Replace(Graph& exec, const Graph& graph) {
  const std::vector<GraphNode*> now = exec.Sorted(), then = graph.Sorted();
  exec.conditions = graph.conditions;
  for (size_t i = 0; i < now.size(); ++i) {
    const auto inside = GraphsIn(now[i]->work), others = GraphsIn(then[i]->work);
    for (size_t k = 0; k < inside.size(); ++k) Replace(*inside[k], *others[k]);
    if (auto* conditional = std::get_if<ConditionalWork>(&now[i]->work.what)) {
      conditional->condition = std::get<ConditionalWork>(then[i]->work.what).condition;
    } else if (inside.empty()) {
      now[i]->work = then[i]->work;
    }
  }
}

}  // namespace

CUgraphExecUpdateResultInfo Update(Graph& exec, const Graph& graph, cuuint64_t flags) {
  const CUgraphExecUpdateResultInfo info = Compare(exec, graph, flags);
  if (info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS) Replace(exec, graph);
  return info;
}

}  // namespace tandem::soft
