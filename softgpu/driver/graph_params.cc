#include "softgpu/driver/graph_params.h"

#include <span>

#include "softgpu/driver/driver.h"
#include "softgpu/driver/launch.h"
#include "softgpu/driver/submit.h"

namespace tandem::soft {
namespace {

CUresult ContextOf(CUcontext handle, std::shared_ptr<Context>* context) {
  if (handle == nullptr) return HealthyContext(context);
  CU_TRY(Ready());
  *context = TheDriver().FindLiving(handle);
  return *context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : (*context)->error();
}

// What a kernel node runs: a function, or a kernel of a library in a context.
CUresult FunctionOf(const CUDA_KERNEL_NODE_PARAMS_v1& params, KernelWork* work) {
  work->handle = params.func;
  return FindFunction(params.func, &work->function);
}

CUresult FunctionOf(const CUDA_KERNEL_NODE_PARAMS_v2& params, KernelWork* work) {
  std::shared_ptr<Context> context;
  if (params.func == nullptr) {
    CU_TRY(ContextOf(params.ctx, &context));
    work->kernel = params.kern;
  }
  work->handle = params.func != nullptr ? params.func : reinterpret_cast<CUfunction>(params.kern);
  return FindFunction(work->handle, &work->function, context);
}

template <typename Params>
CUresult KernelWorkFrom(const Params* params, Work* work) {
  std::shared_ptr<Context> current;
  CU_TRY(HealthyContext(&current));
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  KernelWork kernel;
  const CUresult found = FunctionOf(*params, &kernel);
  if (found == CUDA_ERROR_INVALID_HANDLE) return CUDA_ERROR_INVALID_VALUE;
  CU_TRY(found);
  const LaunchShape shape{{params->gridDimX, params->gridDimY, params->gridDimZ},
                          {params->blockDimX, params->blockDimY, params->blockDimZ},
                          params->sharedMemBytes};
  CU_TRY(
      PrepareLaunch(*kernel.function, shape, params->kernelParams, params->extra, &kernel.launch));
  work->context = kernel.function->context;
  work->what = std::move(kernel);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult KernelWorkOf(const CUDA_KERNEL_NODE_PARAMS_v1* params, Work* work) {
  return KernelWorkFrom(params, work);
}

CUresult KernelWorkOf(const CUDA_KERNEL_NODE_PARAMS_v2* params, Work* work) {
  return KernelWorkFrom(params, work);
}

CUresult CopyWorkOf(const CUDA_MEMCPY3D* params, CUcontext context, Work* work) {
  CU_TRY(ContextOf(context, &work->context));
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_MEMCPY3D& p = *params;
  if (p.WidthInBytes == 0 || p.Height == 0 || p.Depth == 0 || p.srcLOD != 0 || p.dstLOD != 0 ||
      p.reserved0 != nullptr || p.reserved1 != nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CopyWork copy;
  CU_TRY(CopyWorkOf(p, &copy));
  CU_TRY(CheckCopy(copy.copy, copy.to_device, copy.from_device));
  work->what = copy;
  return CUDA_SUCCESS;
}

CUresult FillWorkOf(const CUDA_MEMSET_NODE_PARAMS* params, CUcontext context, Work* work) {
  CU_TRY(ContextOf(context, &work->context));
  if (params == nullptr || params->width == 0 || params->height == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const uint32_t size = params->elementSize;
  uint64_t width = 0;
  if ((size != 1 && size != 2 && size != 4) ||
      __builtin_mul_overflow(params->width, size, &width)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (params->height > 1 && (params->pitch < width || params->pitch % size != 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Fill fill{{params->dst, params->height > 1 ? params->pitch : width},
                  width,
                  params->height,
                  params->value,
                  size};
  CU_TRY(CheckFill(fill));
  work->what = FillWork{fill};
  return CUDA_SUCCESS;
}

CUresult HostWorkOf(const CUDA_HOST_NODE_PARAMS* params, Work* work) {
  CU_TRY(Ready());
  if (params == nullptr || params->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  work->what = HostWork{params->fn, params->userData};
  return CUDA_SUCCESS;
}

CUresult EventWorkOf(CUevent handle, bool record, Work* work) {
  CU_TRY(Ready());
  const auto event = TheDriver().events.Find(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (event->shared != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  *work = Work{event->context, EventWork{handle, event, record}};
  return CUDA_SUCCESS;
}

CUresult WorkOf(const CUgraphNodeParams& params, Work* work) {
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return KernelWorkOf(&params.kernel, work);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      if (params.memcpy.flags != 0 || params.memcpy.reserved != 0) return CUDA_ERROR_INVALID_VALUE;
      return CopyWorkOf(&params.memcpy.copyParams, params.memcpy.copyCtx, work);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const CUDA_MEMSET_NODE_PARAMS_v2& p = params.memset;
      const CUDA_MEMSET_NODE_PARAMS fill = {p.dst,         p.pitch, p.value,
                                            p.elementSize, p.width, p.height};
      return FillWorkOf(&fill, p.ctx, work);
    }
    case CU_GRAPH_NODE_TYPE_HOST:
      return HostWorkOf(&params.host, work);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return EventWorkOf(params.eventWait.event, false, work);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return EventWorkOf(params.eventRecord.event, true, work);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return Ready();
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      CU_TRY(HealthyContext(&work->context));
      return FreeWorkOf(params.free.dptr, work);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult AllocWorkOf(const std::shared_ptr<Context>& context, DeviceVram* device,
                     const CUDA_MEM_ALLOC_NODE_PARAMS& params, Work* work) {
  AllocWork alloc;
  Reach reach = ReachOf(device->ordinal(), 0);
  for (const CUmemAccessDesc& each : std::span(params.accessDescs, params.accessDescCount)) {
    Access access = Access::kNone;
    CU_TRY(AccessOf(each.flags, &access));
    reach.Add(each.location.id, access);
  }
  {
    Memory& memory = *TheDriver().memory;
    MutexLock lock(memory.mutex());
    if (context->destroyed.load()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    alloc.block = memory.graphs().Add(device, context->id, params.bytesize, reach);
  }
  if (alloc.block == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  alloc.shown = params;
  alloc.shown.dptr = alloc.block->range.begin;
  alloc.access.assign(params.accessDescs, params.accessDescs + params.accessDescCount);
  *work = Work{context, std::move(alloc)};
  return CUDA_SUCCESS;
}

CUresult FreeWorkOf(CUdeviceptr pointer, Work* work) {
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  auto block = memory.graphs().Find(pointer);
  if (block == nullptr || block->range.begin != pointer) return CUDA_ERROR_INVALID_VALUE;
  work->what = FreeWork{std::move(block)};
  return CUDA_SUCCESS;
}

CUresult CheckMemory(const Graph& graph, const Work& work) {
  const bool outside =
      std::holds_alternative<HostWork>(work.what) || std::holds_alternative<EventWork>(work.what);
  if ((graph.embedded && IsOfMemory(work)) || (graph.body && outside)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const auto* free = std::get_if<FreeWork>(&work.what);
  return free != nullptr && graph.Frees(free->block.get()) ? CUDA_ERROR_INVALID_VALUE
                                                           : CUDA_SUCCESS;
}

}  // namespace tandem::soft
