#include "src/shim/memory/graph_memory.h"

#include <algorithm>
#include <cstring>

namespace tandem::shim {
namespace {

constexpr uint64_t kDriverPage = 2 << 20;
constexpr int kDeepest = 16;  // graphs within graphs

}  // namespace

GraphMemory::GraphMemory(const cuda::RealDriver* real, CUdevice device, FixedMemory* fixed)
    : real_(real),
      device_(device),
      kept_(fixed, {[this] { return Attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT); },
                    [this] { return Attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT); }}) {}

Bytes GraphMemory::Attribute(CUgraphMem_attribute attribute) const {
  uint64_t value = 0;
  const auto get = real_->cuDeviceGetGraphMemAttribute;
  const bool known = get != nullptr && get(device_, attribute, &value) == CUDA_SUCCESS;
  return Bytes(known ? value : 0);
}

Bytes GraphMemory::SizeOf(CUgraph graph) const {
  Addresses addresses;
  if (real_->cuGraphMemAllocNodeGetParams != nullptr) Collect(graph, 0, &addresses);
  std::sort(addresses.begin(), addresses.end());
  uint64_t bytes = 0, counted_to = 0;
  for (const auto& [from, to] : addresses) {
    if (to > counted_to) bytes += to - std::max(from, counted_to);
    counted_to = std::max(counted_to, to);
  }
  return Bytes(bytes);
}

void GraphMemory::Collect(CUgraph graph, int depth, Addresses* addresses) const {
  size_t count = 0;
  if (depth > kDeepest || real_->cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS) return;
  std::vector<CUgraphNode> nodes(count);
  if (count == 0 || real_->cuGraphGetNodes(graph, nodes.data(), &count) != CUDA_SUCCESS) return;
  nodes.resize(std::min(count, nodes.size()));
  for (CUgraphNode node : nodes) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    if (real_->cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) continue;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
      CUgraph child = nullptr;
      const CUresult result = real_->cuGraphChildGraphNodeGetGraph(node, &child);
      if (result == CUDA_SUCCESS) Collect(child, depth + 1, addresses);
    } else if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
      CUDA_MEM_ALLOC_NODE_PARAMS params = {};
      const CUresult result = real_->cuGraphMemAllocNodeGetParams(node, &params);
      const CUmemLocation& location = params.poolProps.location;
      const bool here = location.type == CU_MEM_LOCATION_TYPE_DEVICE && location.id == device_;
      if (result != CUDA_SUCCESS || !here) continue;
      const uint64_t end = params.dptr + params.bytesize;
      addresses->emplace_back(params.dptr / kDriverPage * kDriverPage,
                              (end + kDriverPage - 1) / kDriverPage * kDriverPage);
    }
  }
}

void GraphMemory::Instantiated(CUgraphExec exec, Bytes bytes) {
  if (bytes == Bytes()) return;
  MutexLock lock(mutex_);
  execs_[exec] = {bytes};
  count_.store(execs_.size(), std::memory_order_release);
}

void GraphMemory::Ends(CUgraphExec exec) {
  if (count_.load(std::memory_order_acquire) == 0) return;
  MutexLock lock(mutex_);
  execs_.erase(exec);
  count_.store(execs_.size(), std::memory_order_release);
}

GraphMemory::Room GraphMemory::Lacking(CUgraphExec exec) const {
  if (count_.load(std::memory_order_acquire) == 0) return {};
  MutexLock lock(mutex_);
  const auto known = execs_.find(exec);
  if (known == execs_.end() || known->second.launched_in == age_) return {};
  return {known->second.bytes, age_};
}

GraphMemory::Room GraphMemory::RoomFor(Bytes bytes) const {
  MutexLock lock(mutex_);
  return {bytes, age_};
}

void GraphMemory::Launched(CUgraphExec exec, const Room& room, bool submitted) {
  kept_.Recount(room.bytes);
  MutexLock lock(mutex_);
  const auto known = execs_.find(exec);
  if (submitted && known != execs_.end()) known->second.launched_in = room.age;
}

bool GraphMemory::Trim() {
  if (kept_.empty() || real_->cuDeviceGraphMemTrim == nullptr) return false;
  const Bytes before = kept_.counted();
  real_->cuDeviceGraphMemTrim(device_);
  Recount();
  return kept_.counted() < before;
}

void GraphMemory::Recount() {
  if (kept_.empty()) return;
  const Bytes before = kept_.counted();
  kept_.Recount();
  if (kept_.counted() >= before) return;
  MutexLock lock(mutex_);
  ++age_;
}

}  // namespace tandem::shim
