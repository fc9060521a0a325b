// Conditional nodes: one task on the compute engine, which runs the nodes of the bodies one after
// the other. Copies over the bus are left to their engines, and waited for.
//
// Threading: REQUIRES graphs_mutex, but for the tasks themselves.
#pragma once

#include <optional>

#include "softgpu/driver/graph.h"

namespace tandem::soft {

// Assigns the values that a graph's conditions begin with; nothing if there are none.
std::optional<Task> AssignTask(const Graph& graph);
// REQUIRES: the bodies are parts of an instantiated graph.
Task ConditionalTask(const ConditionalWork& work);

}  // namespace tandem::soft
