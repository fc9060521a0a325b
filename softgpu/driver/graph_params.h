// From the parameters of a node to the work that it does: checked and copied.
//
// Threading: any thread; CheckMemory() under the driver's graphs_mutex.
#pragma once

#include <memory>

#include "softgpu/driver/graph.h"
#include "src/cuda/driver_types.h"

namespace tandem::soft {

CUresult KernelWorkOf(const CUDA_KERNEL_NODE_PARAMS_v1* params, Work* work);
CUresult KernelWorkOf(const CUDA_KERNEL_NODE_PARAMS_v2* params, Work* work);
CUresult CopyWorkOf(const CUDA_MEMCPY3D* params, CUcontext context, Work* work);
CUresult FillWorkOf(const CUDA_MEMSET_NODE_PARAMS* params, CUcontext context, Work* work);
CUresult HostWorkOf(const CUDA_HOST_NODE_PARAMS* params, Work* work);
CUresult EventWorkOf(CUevent event, bool record, Work* work);
// Of a node of any type but those that allocate or are a graph.
CUresult WorkOf(const CUgraphNodeParams& params, Work* work);

// What a node does that allocates memory, or frees it; the address is settled here.
// REQUIRES: the parameters were checked.
CUresult AllocWorkOf(const std::shared_ptr<Context>& context, DeviceVram* device,
                     const CUDA_MEM_ALLOC_NODE_PARAMS& params, Work* work);
CUresult FreeWorkOf(CUdeviceptr pointer, Work* work);
// Whether a graph may get a node of such work: one that belongs to a node has no memory, the body
// of a conditional node has no host functions and events, and none frees the same memory twice.
CUresult CheckMemory(const Graph& graph, const Work& work);

}  // namespace tandem::soft
