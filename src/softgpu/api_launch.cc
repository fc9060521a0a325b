// Entry points: kernel launches.
#include <algorithm>
#include <cstring>
#include <vector>

#include "src/cuda/driver_api.h"
#include "src/softgpu/driver.h"
#include "src/softgpu/submit.h"

namespace tandem::soft {
namespace {

// What the device can run at all, as its attributes say.
CUresult CheckShape(const Function& function, const ptx::Launch& launch) {
  const auto& [grid_x, grid_y, grid_z] = launch.grid;
  const auto& [block_x, block_y, block_z] = launch.block;
  if (grid_x == 0 || grid_y == 0 || grid_z == 0 || block_x == 0 || block_y == 0 || block_z == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (grid_x > 0x7fff'ffff || grid_y > 65535 || grid_z > 65535 || block_x > 1024 ||
      block_y > 1024 || block_z > 64) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const uint32_t threads = block_x * block_y * block_z;
  if (threads > kMaxBlockThreads) return CUDA_ERROR_INVALID_VALUE;
  const ptx::Kernel& kernel = *function.kernel;
  if (launch.dynamic_shared_bytes > function.max_dynamic_shared.load()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const uint64_t registers = uint64_t{std::max<uint32_t>(kernel.registers, 1)} * threads;
  if (threads > kernel.max_threads || registers > kRegistersPerBlock ||
      kernel.static_shared_bytes + launch.dynamic_shared_bytes > kSharedBytesOptIn) {
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  }
  return CUDA_SUCCESS;
}

// The parameters as one buffer: a list of (key, value) pairs that ends in a zero key.
CUresult ReadExtra(void** extra, std::vector<uint8_t>* params) {
  const void* buffer = nullptr;
  size_t size = 0;
  bool has_size = false;
  for (int i = 0;; i += 2) {
    const auto key = reinterpret_cast<uintptr_t>(extra[i]);
    if (key == CU_LAUNCH_PARAM_END_VALUE) break;
    if (key == CU_LAUNCH_PARAM_BUFFER_POINTER_VALUE) {
      buffer = extra[i + 1];
    } else if (key == CU_LAUNCH_PARAM_BUFFER_SIZE_VALUE && extra[i + 1] != nullptr) {
      std::memcpy(&size, extra[i + 1], sizeof(size));
      has_size = true;
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (buffer == nullptr || !has_size || size < params->size()) return CUDA_ERROR_INVALID_VALUE;
  if (!params->empty()) std::memcpy(params->data(), buffer, params->size());
  return CUDA_SUCCESS;
}

CUresult ReadParams(const ptx::Kernel& kernel, void** pointers, void** extra,
                    std::vector<uint8_t>* params) {
  params->resize(kernel.param_bytes);
  if (pointers != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (extra != nullptr) return ReadExtra(extra, params);
  if (pointers == nullptr) {
    return kernel.params.empty() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < kernel.params.size(); ++i) {
    if (pointers[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const ptx::Param& param = kernel.params[i];
    std::memcpy(params->data() + param.offset, pointers[i], param.size);
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult PrepareLaunch(const Function& function, const LaunchShape& shape, void** parameters,
                       void** extra, ptx::Launch* launch) {
  launch->program = function.program.get();
  launch->kernel = function.kernel;
  launch->image_address = function.image_address;
  std::ranges::copy(shape.grid, launch->grid);
  std::ranges::copy(shape.block, launch->block);
  launch->dynamic_shared_bytes = shape.shared_bytes;
  CU_TRY(CheckShape(function, *launch));
  return ReadParams(*function.kernel, parameters, extra, &launch->params);
}

}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuLaunchKernel(CUfunction handle, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream_handle,
                        void** parameters, void** extra) noexcept {
  std::shared_ptr<Context> current, context;
  std::shared_ptr<Stream> stream;
  CU_TRY(HealthyContext(&current));
  const auto function = TheDriver().functions.Find(handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  CU_TRY(FindStream(current, stream_handle, &context, &stream));
  if (function->context != context) return CUDA_ERROR_INVALID_HANDLE;
  KernelWork work{handle, function, {}};
  const LaunchShape shape{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes};
  CU_TRY(PrepareLaunch(*function, shape, parameters, extra, &work.launch));
  return SubmitWork(context, stream, {nullptr, std::move(work)});
}
