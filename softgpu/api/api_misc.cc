// Entry points: settings that change nothing here but are kept and checked, and calls for tools.
#include "softgpu/driver/driver.h"
#include "src/cuda/driver_api.h"

namespace tandem::soft {
namespace {

constexpr int kSharedConfigs = 3;
constexpr int kExecAffinities = 1;

}  // namespace
}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuDeviceGetProperties(CUdevprop* properties, CUdevice ordinal) noexcept {
  Device* device = nullptr;
  CU_TRY(FindDevice(ordinal, &device));
  if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto value = [&](CUdevice_attribute attribute) {
    int answer = 0;
    device->Attribute(attribute, &answer);
    return answer;
  };
  *properties = CUdevprop{
      value(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
      {value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X), value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
       value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)},
      {value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X), value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
       value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)},
      value(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
      value(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
      value(CU_DEVICE_ATTRIBUTE_WARP_SIZE),
      value(CU_DEVICE_ATTRIBUTE_MAX_PITCH),
      value(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
      value(CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
      value(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT)};
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetExecAffinitySupport(int* supported, CUexecAffinityType type,
                                        CUdevice ordinal) noexcept {
  Device* device = nullptr;
  CU_TRY(FindDevice(ordinal, &device));
  if (supported == nullptr || type < 0 || type >= kExecAffinities) return CUDA_ERROR_INVALID_VALUE;
  *supported = 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) noexcept {
  std::shared_ptr<Context> context;
  if (handle == nullptr) {
    CU_TRY(CurrentContext(&context));
  } else {
    CU_TRY(Ready());
    context = TheDriver().FindLiving(handle);
    if (!context) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = context->id;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(CurrentContext(&context));
  const unsigned int wait = flags & CU_CTX_SCHED_MASK;
  const bool one_way = wait == 0 || wait == 1 || wait == 2 || wait == 4;
  if (!one_way || (flags & ~CU_CTX_FLAGS_MASK) != 0) return CUDA_ERROR_INVALID_VALUE;
  context->flags.store(flags);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig* config) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(CurrentContext(&context));
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *config = context->shared_config.load();
  return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(CurrentContext(&context));
  if (config < 0 || config >= kSharedConfigs) return CUDA_ERROR_INVALID_VALUE;
  context->shared_config.store(config);
  return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache() noexcept {
  std::shared_ptr<Context> context;
  return HealthyContext(&context);
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* id) noexcept {
  std::shared_ptr<Context> current, context;
  std::shared_ptr<Stream> stream;
  CU_TRY(HealthyContext(&current));
  CU_TRY(FindStream(current, handle, &context, &stream));
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = reinterpret_cast<uintptr_t>(stream.get());
  return CUDA_SUCCESS;
}

// A profiler comes to the program from outside; there is none here to be told, nor one in any
// driver since 12.0.
CUresult cuProfilerInitialize(const char*, const char*, int) noexcept {
  CU_TRY(Ready());
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuProfilerStart() noexcept {
  std::shared_ptr<Context> context;
  return CurrentContext(&context);
}

CUresult cuProfilerStop() noexcept {
  std::shared_ptr<Context> context;
  return CurrentContext(&context);
}
