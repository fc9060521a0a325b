// GraphExec: an instantiated graph: a copy that can be launched again and again, and changed in
// its parameters but not in its shape.
//
// Threading: `graph` is guarded by the driver's graphs_mutex. Launches of one take its own mutex
// first, for a launch may wait for room in its stream.
#pragma once

#include <memory>
#include <vector>

#include "softgpu/driver/graph.h"
#include "src/base/mutex.h"

namespace tandem::soft {

struct GraphExec {
  std::shared_ptr<Graph> graph;  // not visible
  cuuint64_t flags = 0;

  Mutex launch_mutex;
  std::vector<Dependency> last GUARDED_BY(launch_mutex);  // the launch before; the next is after it
};

// Why nodes cannot be changed into others; success if they can.
CUgraphExecUpdateResult MayBecome(const Work& now, const Work& then);
// Changes all of `exec`'s work to that of a graph of the same shape, or nothing. `flags` are those
// that it was instantiated with.
CUgraphExecUpdateResultInfo Update(Graph& exec, const Graph& graph, cuuint64_t flags);

// REQUIRES: no lock is held.
CUresult Launch(const std::shared_ptr<GraphExec>& exec, const std::shared_ptr<Context>& context,
                const std::shared_ptr<Stream>& stream);

}  // namespace tandem::soft
