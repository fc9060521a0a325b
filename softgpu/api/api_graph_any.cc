// Entry points: nodes of any type, attributes of kernel nodes, and graphs as pictures.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "softgpu/api/api_graph.h"
#include "softgpu/driver/launch.h"
#include "src/cuda/driver_api.h"

namespace tandem::soft {
namespace {

// Reserved fields must be zero.
CUresult CheckReserved(const CUgraphNodeParams* params) {
  if (params == nullptr || params->reserved2 != 0) return CUDA_ERROR_INVALID_VALUE;
  const bool zero = std::ranges::all_of(params->reserved0, [](int value) { return value == 0; });
  return zero ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// The context that the parameters name; null: a node that there is keeps its own.
CUcontext NamedContext(const CUgraphNodeParams& params) {
  if (params.type == CU_GRAPH_NODE_TYPE_MEMCPY) return params.memcpy.copyCtx;
  return params.type == CU_GRAPH_NODE_TYPE_MEMSET ? params.memset.ctx : nullptr;
}

CUresult NewWorkOf(const CUgraphNodeParams* params, Work* work) {
  CU_TRY(Ready());
  CU_TRY(CheckReserved(params));
  CU_TRY(WorkOf(*params, work));
  const bool transfers =
      params->type == CU_GRAPH_NODE_TYPE_MEMCPY || params->type == CU_GRAPH_NODE_TYPE_MEMSET;
  if (transfers && NamedContext(*params) == nullptr) work->context = nullptr;
  return CUDA_SUCCESS;
}

bool IsHintOfNodes(CUlaunchAttributeID attribute) {
  return attribute == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW ||
         attribute == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION ||
         attribute == CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE ||
         attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP ||
         attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
}

CUresult FindKernelNode(CUgraphNode handle, std::shared_ptr<GraphNode>* node, KernelWork** work) {
  const KernelWork* found = nullptr;
  CU_TRY(GetWork(handle, node, &found));
  *work = std::get_if<KernelWork>(&(*node)->work.what);
  return CUDA_SUCCESS;
}

CUresult SetCooperative(bool cooperative, KernelWork* work) {
  if (cooperative) return MakeCooperative(*work->function, &work->launch);
  work->launch.cooperative = false;
  return CUDA_SUCCESS;
}

const char* NameOf(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return "kernel";
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return "memcpy";
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return "memset";
    case CU_GRAPH_NODE_TYPE_HOST:
      return "host";
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return "graph";
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return "empty";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return "wait for event";
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return "record event";
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return "allocate";
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return "free";
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return "conditional";
    default:
      return "";
  }
}

std::string InHex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

// What a node does, in one line of its label.
std::string Describe(const Work& work, bool verbose) {
  if (const auto* kernel = std::get_if<KernelWork>(&work.what)) {
    const auto& [x, y, z] = kernel->launch.grid;
    const auto& [bx, by, bz] = kernel->launch.block;
    std::ostringstream text;
    text << kernel->launch.kernel->name;
    if (verbose) {
      text << "\\ngrid " << x << " " << y << " " << z << ", block " << bx << " " << by << " " << bz
           << ", shared " << kernel->launch.dynamic_shared_bytes;
    }
    return text.str();
  }
  if (!verbose) return "";
  if (const auto* copy = std::get_if<CopyWork>(&work.what)) {
    const Copy& c = copy->copy;
    return InHex(c.to.address) + " from " + InHex(c.from.address) + ", " + std::to_string(c.width) +
           " x " + std::to_string(c.height) + " x " + std::to_string(c.depth);
  }
  if (const auto* fill = std::get_if<FillWork>(&work.what)) {
    return InHex(fill->fill.to.address) + " = " + InHex(fill->fill.value) + ", " +
           std::to_string(fill->fill.width) + " x " + std::to_string(fill->fill.height);
  }
  if (const auto* alloc = std::get_if<AllocWork>(&work.what)) {
    return InHex(alloc->shown.dptr) + ", " + std::to_string(alloc->shown.bytesize);
  }
  if (const auto* free = std::get_if<FreeWork>(&work.what)) {
    return InHex(free->block->range.begin);
  }
  return "";
}

// A graph and, each in a box of its own, its children. Nodes have the numbers of their order.
void Draw(const Graph& graph, const std::string& name, bool verbose, std::ostream& out) {
  out << "subgraph cluster_" << name << " {\nlabel=\"" << name << "\";\n";
  std::unordered_map<const GraphNode*, size_t> numbers;
  for (const auto& node : graph.nodes()) numbers.emplace(node.get(), numbers.size());
  for (const auto& node : graph.nodes()) {
    const std::string own = name + "_" + std::to_string(numbers.at(node.get()));
    const std::string what = Describe(node->work, verbose);
    out << own << " [shape=box label=\"" << numbers.at(node.get()) << " "
        << NameOf(TypeOf(node->work)) << (what.empty() ? "" : "\\n") << what << "\"];\n";
    for (const GraphNode* next : node->after) {
      out << own << " -> " << name << "_" << numbers.at(next) << ";\n";
    }
    size_t number = 0;
    for (const auto& inside : GraphsIn(node->work)) {
      Draw(*inside, own + "_graph" + (number == 0 ? "" : std::to_string(number)), verbose, out);
      ++number;
    }
  }
  out << "}\n";
}

}  // namespace
}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before, size_t count,
                        CUgraphNodeParams* params) noexcept {
  CU_TRY(Ready());
  CU_TRY(CheckReserved(params));
  if (params->type == CU_GRAPH_NODE_TYPE_GRAPH) {
    return cuGraphAddChildGraphNode(node, graph, before, count, params->graph.graph);
  }
  if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
    return cuGraphAddMemAllocNode(node, graph, before, count, &params->alloc);
  }
  if (params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
    return AddConditional(node, graph, before, count, &params->conditional);
  }
  Work work;
  CU_TRY(WorkOf(*params, &work));
  return AddNode(node, graph, before, count, std::move(work));
}

CUresult cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
                           const CUgraphEdgeData* edges, size_t count,
                           CUgraphNodeParams* params) noexcept {
  CU_TRY(CheckEdges(edges, count));
  return cuGraphAddNode(node, graph, before, count, params);
}

// Memory nodes cannot change, and a child only in an instantiated graph.
CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams* params) noexcept {
  Work work;
  CU_TRY(NewWorkOf(params, &work));
  if (std::holds_alternative<FreeWork>(work.what)) return CUDA_ERROR_NOT_SUPPORTED;
  return SetWork(node, std::move(work));
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                  CUgraphNodeParams* params) noexcept {
  CU_TRY(Ready());
  CU_TRY(CheckReserved(params));
  if (params->type == CU_GRAPH_NODE_TYPE_GRAPH) {
    return cuGraphExecChildGraphNodeSetParams(exec, node, params->graph.graph);
  }
  Work work;
  CU_TRY(NewWorkOf(params, &work));
  if (std::holds_alternative<FreeWork>(work.what)) return CUDA_ERROR_NOT_SUPPORTED;
  return SetExecWork(exec, node, std::move(work));
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUlaunchAttributeID attribute,
                                       CUlaunchAttributeValue* value) noexcept {
  CU_TRY(Ready());
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(TheDriver().graphs_mutex);
  std::shared_ptr<GraphNode> node;
  KernelWork* work = nullptr;
  if (FindKernelNode(handle, &node, &work) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_HANDLE;
  CUlaunchAttributeValue answer = {};
  if (attribute == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
    answer.cooperative = work->launch.cooperative ? 1 : 0;
  } else if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
    answer.priority = work->priority;
  } else if (IsHintOfNodes(attribute)) {
    const auto hint = work->hints.find(attribute);
    if (hint != work->hints.end()) answer = hint->second;
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *value = answer;
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUlaunchAttributeID attribute,
                                       const CUlaunchAttributeValue* value) noexcept {
  CU_TRY(Ready());
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(TheDriver().graphs_mutex);
  std::shared_ptr<GraphNode> node;
  KernelWork* work = nullptr;
  if (FindKernelNode(handle, &node, &work) != CUDA_SUCCESS) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
    return SetCooperative(value->cooperative != 0, work);
  }
  if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
    work->priority = ClampPriority(value->priority);
    return CUDA_SUCCESS;
  }
  if (!IsHintOfNodes(attribute)) return CUDA_ERROR_INVALID_VALUE;
  CU_TRY(CheckAttribute(attribute, *value));
  work->hints[attribute] = *value;
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to_handle, CUgraphNode from_handle) noexcept {
  CU_TRY(Ready());
  MutexLock lock(TheDriver().graphs_mutex);
  std::shared_ptr<GraphNode> to_node, from_node;
  KernelWork* to = nullptr;
  KernelWork* from = nullptr;
  CU_TRY(FindKernelNode(to_handle, &to_node, &to));
  CU_TRY(FindKernelNode(from_handle, &from_node, &from));
  CU_TRY(SetCooperative(from->launch.cooperative, to));
  to->priority = from->priority;
  to->hints = from->hints;
  return CUDA_SUCCESS;
}

CUresult cuGraphDebugDotPrint(CUgraph handle, const char* path, unsigned int flags) noexcept {
  CU_TRY(Ready());
  if (path == nullptr || (flags & ~CU_GRAPH_DEBUG_DOT_FLAGS_ALL) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::ostringstream picture;
  {
    MutexLock lock(TheDriver().graphs_mutex);
    std::shared_ptr<Graph> graph;
    CU_TRY(FindGraph(handle, &graph));
    // Whatever a flag asks for in particular is told with the rest.
    Draw(*graph, "graph", flags != 0, picture);
  }
  std::ofstream file(path);
  file << "digraph dot {\n" << picture.str() << "}\n";
  file.close();
  return file ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}
