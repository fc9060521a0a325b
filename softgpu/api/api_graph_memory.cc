// Entry points: nodes that allocate and free memory.
#include <cstring>

#include "softgpu/api/api_graph.h"
#include "src/cuda/driver_api.h"

namespace tandem::soft {
namespace {

CUresult CheckParams(const CUDA_MEM_ALLOC_NODE_PARAMS& params, Device** device) {
  const CUmemPoolProps& pool = params.poolProps;
  if (pool.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      pool.location.type != CU_MEM_LOCATION_TYPE_DEVICE || params.bytesize == 0 ||
      (params.accessDescCount > 0 && params.accessDescs == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (pool.handleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  *device = TheDriver().FindDevice(pool.location.id);
  if (*device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (params.accessDescCount > TheDriver().devices.size()) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < params.accessDescCount; ++i) {
    const CUmemLocation& location = params.accessDescs[i].location;
    if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    if (TheDriver().FindDevice(location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  }
  return CUDA_SUCCESS;
}

// The value of an attribute; null for what is none.
uint64_t* ValueOf(CUgraphMem_attribute attribute, GraphMemory::Counts* counts) {
  switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
      return &counts->used;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      return &counts->used_high;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
      return &counts->reserved;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      return &counts->reserved_high;
  }
  return nullptr;
}

}  // namespace

}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
                                size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* params) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(HealthyContext(&context));
  if (node == nullptr || params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* device = nullptr;
  CU_TRY(CheckParams(*params, &device));
  Work work;
  CU_TRY(AllocWorkOf(context, device, *params, &work));
  const CUdeviceptr pointer = std::get<AllocWork>(work.what).shown.dptr;
  CU_TRY(AddNode(node, graph, before, count, std::move(work)));
  params->dptr = pointer;
  return CUDA_SUCCESS;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode handle,
                                      CUDA_MEM_ALLOC_NODE_PARAMS* params) noexcept {
  CU_TRY(Ready());
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(TheDriver().graphs_mutex);
  std::shared_ptr<GraphNode> node;
  const AllocWork* work = nullptr;
  CU_TRY(GetWork(handle, &node, &work));
  *params = work->shown;
  params->accessDescs = work->access.empty() ? nullptr : work->access.data();
  return CUDA_SUCCESS;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
                               size_t count, CUdeviceptr pointer) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(HealthyContext(&context));
  Work work;
  work.context = context;
  CU_TRY(FreeWorkOf(pointer, &work));
  return AddNode(node, graph, before, count, std::move(work));
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode handle, CUdeviceptr* pointer) noexcept {
  CU_TRY(Ready());
  if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(TheDriver().graphs_mutex);
  std::shared_ptr<GraphNode> node;
  const FreeWork* work = nullptr;
  CU_TRY(GetWork(handle, &node, &work));
  *pointer = work->block->range.begin;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGraphMemTrim(CUdevice ordinal) noexcept {
  Device* device = nullptr;
  CU_TRY(FindDevice(ordinal, &device));
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  memory.graphs().Trim(device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute,
                                      void* value) noexcept {
  Device* device = nullptr;
  CU_TRY(FindDevice(ordinal, &device));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  GraphMemory::Counts counts = memory.graphs().CountsOf(device);
  const uint64_t* answer = ValueOf(attribute, &counts);
  if (answer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(value, answer, sizeof(*answer));
  return CUDA_SUCCESS;
}

// The peaks may be set to zero, which starts them anew.
CUresult cuDeviceSetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute,
                                      void* value) noexcept {
  Device* device = nullptr;
  CU_TRY(FindDevice(ordinal, &device));
  uint64_t wanted = 0;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(&wanted, value, sizeof(wanted));
  if (wanted != 0) return CUDA_ERROR_INVALID_VALUE;
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      memory.graphs().ResetUsedHigh(device);
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      memory.graphs().ResetReservedHigh(device);
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}
