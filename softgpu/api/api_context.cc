// Entry points: contexts, primary ones and others.
#include <algorithm>

#include "softgpu/driver/driver.h"
#include "src/cuda/driver_api.h"

namespace tandem::soft {
namespace {

constexpr unsigned int kApiVersion = 3020;

bool ValidFlags(unsigned int flags) {
  const unsigned int wait = flags & CU_CTX_SCHED_MASK;
  const bool one_way = wait == 0 || wait == 1 || wait == 2 || wait == 4;
  return one_way && (flags & ~CU_CTX_FLAGS_MASK) == 0;
}

CUresult Destroy(CUcontext handle) {
  CU_TRY(Ready());
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto found = TheDriver().contexts.Find(handle);
  if (!found || found->primary) return CUDA_ERROR_INVALID_CONTEXT;
  const auto context = TheDriver().contexts.Take(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  TheDriver().DestroyContext(context);
  // The calling thread's stack loses it; other threads find it destroyed.
  auto& stack = ContextStack();
  if (!stack.empty() && stack.back() == context) stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult Push(CUcontext handle) {
  CU_TRY(Ready());
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto context = TheDriver().contexts.Find(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  ContextStack().push_back(std::move(context));
  return CUDA_SUCCESS;
}

CUresult Pop(CUcontext* handle) {
  CU_TRY(Ready());
  auto& stack = ContextStack();
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (handle != nullptr) *handle = HandleOf(stack.back());
  stack.pop_back();
  return CUDA_SUCCESS;
}

// Its handle stays, and may still be pushed: it will stand for the next primary context.
void EndPrimary(Device::Primary& primary) {
  if (!primary.context) return;
  TheDriver().DestroyContext(primary.context);
  primary.context = nullptr;
}

CUresult ReleasePrimary(CUdevice ordinal) {
  Device* device = nullptr;
  CU_TRY(FindDevice(ordinal, &device));
  MutexLock lock(device->primary_mutex);
  if (device->primary.retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--device->primary.retained == 0) EndPrimary(device->primary);
  return CUDA_SUCCESS;
}

CUresult ResetPrimary(CUdevice ordinal) {
  Device* device = nullptr;
  CU_TRY(FindDevice(ordinal, &device));
  MutexLock lock(device->primary_mutex);
  EndPrimary(device->primary);  // made anew when it is next retained
  device->primary.flags = 0;
  return CUDA_SUCCESS;
}

CUresult SetPrimaryFlags(CUdevice ordinal, unsigned int flags, bool also_active) {
  Device* device = nullptr;
  CU_TRY(FindDevice(ordinal, &device));
  if (!ValidFlags(flags)) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(device->primary_mutex);
  if (device->primary.context) {
    if (!also_active) return CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE;
    device->primary.context->flags.store(flags);
  }
  device->primary.flags = flags;
  return CUDA_SUCCESS;
}

// The limits a device without device-side launches and heaps can have, and their first values.
bool DefaultLimit(CUlimit limit, size_t* value) {
  switch (limit) {
    case CU_LIMIT_STACK_SIZE:
      *value = 1024;
      return true;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
      *value = 1 << 20;
      return true;
    case CU_LIMIT_MALLOC_HEAP_SIZE:
      *value = 8 << 20;
      return true;
    default:
      return false;
  }
}

bool IsLimit(CUlimit limit) {
  return limit >= CU_LIMIT_STACK_SIZE && limit <= CU_LIMIT_PERSISTING_L2_CACHE_SIZE;
}

// The current context where no handle names one.
CUresult FindOrCurrent(CUcontext handle, std::shared_ptr<Context>* context) {
  if (handle == nullptr) return CurrentContext(context);
  CU_TRY(Ready());
  *context = TheDriver().FindLiving(handle);
  return *context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

}  // namespace
}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice ordinal) noexcept {
  Device* device = nullptr;
  CU_TRY(FindDevice(ordinal, &device));
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(device->primary_mutex);
  Device::Primary& primary = device->primary;
  if (primary.id == 0) primary.id = NewHandle();
  if (!primary.context) {
    CU_TRY(TheDriver().CreateContext(device, primary.flags, primary.id, &primary.context));
  }
  ++primary.retained;
  *context = HandleOf(primary.context);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) noexcept {
  return ReleasePrimary(device);
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) noexcept {
  return ReleasePrimary(device);
}
CUresult cuDevicePrimaryCtxReset(CUdevice device) noexcept {
  return ResetPrimary(device);
}
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) noexcept {
  return ResetPrimary(device);
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) noexcept {
  return SetPrimaryFlags(device, flags, false);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) noexcept {
  return SetPrimaryFlags(device, flags, true);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int* flags, int* active) noexcept {
  Device* device = nullptr;
  CU_TRY(FindDevice(ordinal, &device));
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(device->primary_mutex);
  *flags = device->primary.flags;
  *active = device->primary.context ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext* handle, unsigned int flags, CUdevice ordinal) noexcept {
  Device* device = nullptr;
  CU_TRY(FindDevice(ordinal, &device));
  if (handle == nullptr || !ValidFlags(flags)) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Context> context;
  CU_TRY(TheDriver().CreateContext(device, flags, 0, &context));
  *handle = HandleOf(context);
  ContextStack().push_back(std::move(context));
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v3(CUcontext* handle, CUexecAffinityParam* /*affinities*/, int count,
                        unsigned int flags, CUdevice ordinal) noexcept {
  if (count < 0) return CUDA_ERROR_INVALID_VALUE;
  if (count > 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return cuCtxCreate_v2(handle, flags, ordinal);
}

CUresult cuCtxCreate_v4(CUcontext* handle, CUctxCreateParams* parameters, unsigned int flags,
                        CUdevice ordinal) noexcept {
  if (parameters == nullptr) return cuCtxCreate_v2(handle, flags, ordinal);
  const int shares = parameters->numExecAffinityParams;
  if (parameters->cigParams != nullptr) {
    return shares != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
  }
  return cuCtxCreate_v3(handle, parameters->execAffinityParams, shares, flags, ordinal);
}

CUresult cuCtxDestroy(CUcontext context) noexcept {
  return Destroy(context);
}
CUresult cuCtxDestroy_v2(CUcontext context) noexcept {
  return Destroy(context);
}
CUresult cuCtxAttach(CUcontext* handle, unsigned int flags) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(CurrentContext(&context));
  if (handle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  context->attached.fetch_add(1);
  *handle = HandleOf(context);
  return CUDA_SUCCESS;
}

// Of the current context only; the last one destroys it.
CUresult cuCtxDetach(CUcontext handle) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(CurrentContext(&context));
  if (handle != HandleOf(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->attached.load() == 1) return Destroy(handle);
  context->attached.fetch_sub(1);
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context) noexcept {
  return Push(context);
}
CUresult cuCtxPushCurrent_v2(CUcontext context) noexcept {
  return Push(context);
}
CUresult cuCtxPopCurrent(CUcontext* context) noexcept {
  return Pop(context);
}
CUresult cuCtxPopCurrent_v2(CUcontext* context) noexcept {
  return Pop(context);
}

CUresult cuCtxSetCurrent(CUcontext handle) noexcept {
  CU_TRY(Ready());
  std::shared_ptr<Context> context;
  if (handle != nullptr) {
    context = TheDriver().contexts.Find(handle);
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  }
  auto& stack = ContextStack();
  if (!stack.empty()) stack.pop_back();
  if (context) stack.push_back(std::move(context));
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) noexcept {
  CU_TRY(Ready());
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto& stack = ContextStack();
  *context = stack.empty() ? nullptr : HandleOf(stack.back());
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(CurrentContext(&context));
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = context->device->ordinal();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext handle) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(FindOrCurrent(handle, &context));
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = context->device->ordinal();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int* flags) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(CurrentContext(&context));
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = context->flags.load();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned int* version) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(FindOrCurrent(handle, &context));
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = kApiVersion;
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(HealthyContext(&context));
  CU_TRY(RefuseIfCaptured(context->group.get()));
  return TheDriver().Synchronise(*context);
}

CUresult cuCtxSynchronize_v2(CUcontext handle) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(FindOrCurrent(handle, &context));
  CU_TRY(context->error());
  CU_TRY(RefuseIfCaptured(context->group.get()));
  return TheDriver().Synchronise(*context);
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(CurrentContext(&context));
  if (!IsLimit(limit)) return CUDA_ERROR_INVALID_VALUE;
  size_t unused = 0;
  if (!DefaultLimit(limit, &unused)) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  MutexLock lock(context->mutex);
  context->limits[limit] = value;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t* value, CUlimit limit) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(CurrentContext(&context));
  if (value == nullptr || !IsLimit(limit)) return CUDA_ERROR_INVALID_VALUE;
  if (!DefaultLimit(limit, value)) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  MutexLock lock(context->mutex);
  const auto set = context->limits.find(limit);
  if (set != context->limits.end()) *value = set->second;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* config) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(CurrentContext(&context));
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *config = context->cache_config.load();
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(CurrentContext(&context));
  if (config < 0 || config > 3) return CUDA_ERROR_INVALID_VALUE;
  context->cache_config.store(config);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(CurrentContext(&context));
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = kGreatestPriority;
  return CUDA_SUCCESS;
}
