#include "softgpu/driver/conditional.h"

#include <algorithm>
#include <utility>

#include "softgpu/driver/driver.h"

namespace tandem::soft {
namespace {

struct Branches;

// What a body does next: a task, or a conditional node's bodies.
struct Step {
  Task task;
  std::shared_ptr<const Branches> branches;
};

struct Branches {
  std::shared_ptr<Condition> condition;
  CUgraphConditionalNodeType type = CU_GRAPH_COND_TYPE_IF;
  std::vector<std::vector<Step>> bodies;
  std::shared_ptr<Stream> aside;  // for work of the other engines

  // The body that runs now, or null.
  const std::vector<Step>* Chosen() const {
    const uint32_t value = *static_cast<const volatile uint32_t*>(condition->value());
    const size_t body = type == CU_GRAPH_COND_TYPE_SWITCH ? value : value != 0 ? 0 : 1;
    return body < bodies.size() ? &bodies[body] : nullptr;
  }
};

CUresult Run(const Branches& branches);

CUresult Run(const Step& step, const std::shared_ptr<Stream>& aside) {
  if (step.branches != nullptr) return Run(*step.branches);
  if (!step.task.run) return CUDA_SUCCESS;
  const bool here =
      step.task.engine == EngineKind::kCompute || step.task.engine == EngineKind::kNone;
  if (here) return step.task.run();
  Scheduler& scheduler = TheDriver().scheduler;
  scheduler.Wait({scheduler.Submit(aside, step.task)});
  return aside->group->error.load();
}

CUresult Run(const Branches& branches) {
  while (const std::vector<Step>* body = branches.Chosen()) {
    CU_TRY(branches.aside->group->error.load());  // of other streams
    for (const Step& step : *body) CU_TRY(Run(step, branches.aside));
    if (branches.type != CU_GRAPH_COND_TYPE_WHILE) break;
  }
  return CUDA_SUCCESS;
}

std::shared_ptr<const Branches> BranchesOf(const ConditionalWork& work);

// The nodes of an instantiated graph are sorted.
void AddSteps(const Graph& graph, const std::shared_ptr<Context>& context,
              std::vector<Step>* steps) {
  if (auto assign = AssignTask(graph)) steps->push_back({std::move(*assign), nullptr});
  for (const auto& node : graph.nodes()) {
    if (!node->enabled) continue;
    if (const auto* child = std::get_if<ChildWork>(&node->work.what)) {
      AddSteps(*child->graph, context, steps);
    } else if (const auto* inner = std::get_if<ConditionalWork>(&node->work.what)) {
      steps->push_back({Task(), BranchesOf(*inner)});
    } else {
      const auto& owner = node->work.context != nullptr ? node->work.context : context;
      steps->push_back({TaskFor(*owner, node->work), nullptr});
    }
  }
}

std::shared_ptr<const Branches> BranchesOf(const ConditionalWork& work) {
  auto branches = std::make_shared<Branches>();
  const std::shared_ptr<Context>& context = work.condition->context;
  branches->condition = work.condition;
  branches->type = work.type;
  branches->aside = std::make_shared<Stream>(context->group, StreamKind::kNonBlocking, 0);
  for (const auto& body : work.bodies) {
    AddSteps(*body, context, &branches->bodies.emplace_back());
  }
  return branches;
}

}  // namespace

std::optional<Task> AssignTask(const Graph& graph) {
  std::vector<std::shared_ptr<Condition>> assigned;
  std::ranges::copy_if(graph.conditions, std::back_inserter(assigned),
                       [](const auto& condition) { return condition->assigned; });
  if (assigned.empty()) return std::nullopt;
  Task task;
  task.engine = EngineKind::kCompute;
  task.run = [assigned = std::move(assigned)] {
    for (const auto& condition : assigned) *condition->value() = condition->launch_value;
    return CUDA_SUCCESS;
  };
  return task;
}

Task ConditionalTask(const ConditionalWork& work) {
  Task task;
  task.engine = EngineKind::kCompute;
  task.run = [branches = BranchesOf(work)] { return Run(*branches); };
  return task;
}

}  // namespace tandem::soft
