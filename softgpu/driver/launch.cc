#include "softgpu/driver/launch.h"

#include <algorithm>
#include <cstring>

#include "softgpu/driver/occupancy.h"

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
  if (kernel.required_block[0] != 0 && !std::ranges::equal(kernel.required_block, launch.block)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (launch.dynamic_shared_bytes > function.max_dynamic_shared.load()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (threads > MaxBlockThreads(kernel) ||
      kernel.static_shared_bytes + launch.dynamic_shared_bytes > kSharedBytesOptIn) {
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  }
  return CUDA_SUCCESS;
}

// Where the blocks of a cooperative launch count who has come to the grid's barrier. A place for
// each priority: kernels of one priority run one after the other, and a barrier leaves its place as
// it was.
CUresult GridWorkspace(const std::shared_ptr<Context>& context, uint64_t* address) {
  constexpr uint64_t kBytes = kGridWorkspaceBytes * (1 - kGreatestPriority);
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  if (context->destroyed.load()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  MutexLock own(context->mutex);
  if (context->grid_workspace == 0) {
    context->grid_workspace =
        memory.AllocateOn(context->device, context->id, kBytes, Heap::Use::kDriver);
    if (context->grid_workspace == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    std::memset(reinterpret_cast<void*>(context->grid_workspace), 0, kBytes);
  }
  *address = context->grid_workspace;
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
  if (params->empty()) return CUDA_SUCCESS;
  if (buffer == nullptr || !has_size || size < params->size()) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(params->data(), buffer, params->size());
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

CUresult Start(const Function& function, const LaunchShape& shape, ptx::Launch* launch) {
  launch->program = function.program.get();
  launch->kernel = function.kernel;
  launch->image_address = function.image_address;
  std::copy_n(shape.grid, 3, launch->grid);
  std::copy_n(shape.block, 3, launch->block);
  launch->dynamic_shared_bytes = shape.shared_bytes;
  CU_TRY(CheckShape(function, *launch));
  return shape.cooperative ? MakeCooperative(function, launch) : CUDA_SUCCESS;
}

}  // namespace

CUresult MakeCooperative(const Function& function, ptx::Launch* launch) {
  const uint64_t blocks = uint64_t{launch->grid[0]} * launch->grid[1] * launch->grid[2];
  const uint32_t threads = launch->block[0] * launch->block[1] * launch->block[2];
  const uint64_t resident = ResidentBlocks(function, threads, launch->dynamic_shared_bytes);
  if (blocks > resident * kMultiprocessors) return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  CU_TRY(GridWorkspace(function.context, &launch->grid_workspace));
  launch->cooperative = true;
  return CUDA_SUCCESS;
}

CUresult FindFunction(CUfunction handle, std::shared_ptr<Function>* function,
                      std::shared_ptr<Context> context) {
  CU_TRY(Ready());
  *function = TheDriver().functions.Find(handle);
  if (*function != nullptr) return CUDA_SUCCESS;
  const auto kernel = TheDriver().kernels.Find(reinterpret_cast<CUkernel>(handle));
  if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
  if (context == nullptr) CU_TRY(HealthyContext(&context));
  CU_TRY(FunctionOf(*kernel, context, &handle));
  *function = TheDriver().functions.Find(handle);
  return *function == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult PrepareLaunch(const Function& function, const LaunchShape& shape, void** parameters,
                       void** extra, ptx::Launch* launch) {
  CU_TRY(Start(function, shape, launch));
  return ReadParams(*function.kernel, parameters, extra, &launch->params);
}

CUresult PrepareLaunch(const Function& function, const LaunchShape& shape,
                       const std::vector<uint8_t>& parameters, ptx::Launch* launch) {
  CU_TRY(Start(function, shape, launch));
  launch->params = parameters;
  launch->params.resize(function.kernel->param_bytes);
  return CUDA_SUCCESS;
}

CUresult FindPlace(CUfunction handle, CUstream stream, LaunchPlace* place) {
  std::shared_ptr<Context> current;
  CU_TRY(HealthyContext(&current));
  CU_TRY(FindStream(current, stream, &place->context, &place->stream));
  CU_TRY(FindFunction(handle, &place->work.function, place->context));
  place->work.handle = handle;
  place->work.priority = place->stream->priority;
  return place->work.function->context == place->context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace tandem::soft
