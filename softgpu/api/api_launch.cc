// Entry points: kernel launches.
#include <algorithm>

#include "softgpu/driver/launch.h"
#include "src/cuda/driver_api.h"

namespace tandem::soft {
namespace {

// Before anything is submitted: whether the event, if there is one, can be recorded in the stream.
CUresult CheckCompletion(CUevent handle, CUstream stream_handle) {
  if (handle == nullptr) return CUDA_SUCCESS;
  std::shared_ptr<Context> current, context;
  std::shared_ptr<Stream> stream;
  CU_TRY(HealthyContext(&current));
  CU_TRY(FindStream(current, stream_handle, &context, &stream));
  const auto event = TheDriver().events.Find(handle);
  return event != nullptr && event->context == context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// Launches with what cuFuncSetBlockShape, cuParamSet* and the like have left.
CUresult LaunchLegacy(CUfunction function, int width, int height, CUstream stream) {
  LaunchPlace place;
  CU_TRY(FindPlace(function, stream, &place));
  if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
  Function::Legacy set;
  {
    MutexLock lock(place.work.function->mutex);
    set = place.work.function->legacy;
  }
  const LaunchShape shape = {{static_cast<uint32_t>(width), static_cast<uint32_t>(height), 1},
                             {set.block[0], set.block[1], set.block[2]},
                             set.shared_bytes};
  CU_TRY(PrepareLaunch(*place.work.function, shape, set.params, &place.work.launch));
  return SubmitWork(place.context, place.stream, {nullptr, std::move(place.work)});
}

CUresult Launch(CUfunction function, const LaunchShape& shape, CUstream stream, void** parameters,
                void** extra, const LaunchOptions& options = {}) {
  LaunchPlace place;
  CU_TRY(FindPlace(function, stream, &place));
  place.work.hints = options.hints;
  if (options.priority) place.work.priority = ClampPriority(*options.priority);
  CU_TRY(PrepareLaunch(*place.work.function, shape, parameters, extra, &place.work.launch));
  return SubmitWork(place.context, place.stream, {nullptr, std::move(place.work)});
}

constexpr int64_t kMaxParams = 4096;

CUresult SetParam(CUfunction handle, int offset, const void* data, size_t bytes) {
  std::shared_ptr<Function> function;
  CU_TRY(FindFunction(handle, &function));
  if (offset < 0 || data == nullptr || bytes > kMaxParams || offset > kMaxParams - int64_t(bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto* from = static_cast<const uint8_t*>(data);
  MutexLock lock(function->mutex);
  auto& params = function->legacy.params;
  if (params.size() < offset + bytes) params.resize(offset + bytes);
  std::copy(from, from + bytes, params.begin() + offset);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void** parameters, void** extra) noexcept {
  const LaunchShape shape = {
      {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, false};
  return Launch(function, shape, stream, parameters, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                   void** parameters) noexcept {
  const LaunchShape shape = {
      {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, true};
  return Launch(function, shape, stream, parameters, nullptr);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void** extra) noexcept {
  CU_TRY(Ready());
  if (config == nullptr || (config->numAttrs > 0 && config->attrs == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  LaunchOptions options;
  CU_TRY(ReadAttributes({config->attrs, config->numAttrs}, &options));
  const LaunchShape shape = {{config->gridDimX, config->gridDimY, config->gridDimZ},
                             {config->blockDimX, config->blockDimY, config->blockDimZ},
                             config->sharedMemBytes,
                             options.cooperative};
  CU_TRY(CheckCompletion(options.completion, config->hStream));
  CU_TRY(Launch(function, shape, config->hStream, parameters, extra, options));
  if (options.completion == nullptr) return CUDA_SUCCESS;
  return cuEventRecord(options.completion, config->hStream);
}

CUresult cuFuncSetBlockShape(CUfunction handle, int x, int y, int z) noexcept {
  std::shared_ptr<Function> function;
  CU_TRY(FindFunction(handle, &function));
  if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(function->mutex);
  function->legacy.block[0] = static_cast<uint32_t>(x);
  function->legacy.block[1] = static_cast<uint32_t>(y);
  function->legacy.block[2] = static_cast<uint32_t>(z);
  return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedSize(CUfunction handle, unsigned int bytes) noexcept {
  std::shared_ptr<Function> function;
  CU_TRY(FindFunction(handle, &function));
  MutexLock lock(function->mutex);
  function->legacy.shared_bytes = bytes;
  return CUDA_SUCCESS;
}

CUresult cuParamSetSize(CUfunction handle, unsigned int bytes) noexcept {
  std::shared_ptr<Function> function;
  CU_TRY(FindFunction(handle, &function));
  if (bytes > kMaxParams) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(function->mutex);
  function->legacy.params.resize(bytes);
  return CUDA_SUCCESS;
}

CUresult cuParamSeti(CUfunction function, int offset, unsigned int value) noexcept {
  return SetParam(function, offset, &value, sizeof(value));
}
CUresult cuParamSetf(CUfunction function, int offset, float value) noexcept {
  return SetParam(function, offset, &value, sizeof(value));
}
CUresult cuParamSetv(CUfunction function, int offset, void* data, unsigned int bytes) noexcept {
  return SetParam(function, offset, data, bytes);
}

CUresult cuLaunch(CUfunction function) noexcept {
  return LaunchLegacy(function, 1, 1, nullptr);
}
CUresult cuLaunchGrid(CUfunction function, int width, int height) noexcept {
  return LaunchLegacy(function, width, height, nullptr);
}
CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) noexcept {
  return LaunchLegacy(function, width, height, stream);
}
