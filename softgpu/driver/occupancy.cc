#include "softgpu/driver/occupancy.h"

#include <algorithm>

#include "softgpu/driver/launch.h"
#include "softgpu/ptx/registers.h"
#include "src/cuda/driver_api.h"

namespace tandem::soft {
namespace {

constexpr uint32_t kWarp = 32;
constexpr uint64_t kSharedStep = 128;

uint32_t RoundUp(uint32_t value, uint32_t step) {
  return (value + step - 1) / step * step;
}

CUresult PotentialBlockSize(int* min_grid, int* block, CUfunction handle,
                            CUoccupancyB2DSize shared_of, size_t dynamic_shared, int limit) {
  std::shared_ptr<Function> function;
  CU_TRY(FindFunction(handle, &function));
  if (min_grid == nullptr || block == nullptr || limit < 0) return CUDA_ERROR_INVALID_VALUE;
  uint32_t most = MaxBlockThreads(*function->kernel);
  if (limit > 0) most = std::min(most, static_cast<uint32_t>(limit));
  uint32_t best_threads = 0, best_size = 0, best_blocks = 0;
  // From the largest down, in whole warps: of equals the largest block wins.
  for (uint32_t size = most; size > 0; size = (size - 1) / kWarp * kWarp) {
    const size_t shared = shared_of != nullptr ? shared_of(static_cast<int>(size)) : dynamic_shared;
    const uint32_t blocks = ResidentBlocks(*function, size, shared);
    if (blocks * size <= best_threads) continue;
    best_threads = blocks * size;
    best_size = size;
    best_blocks = blocks;
  }
  *block = static_cast<int>(best_size);
  *min_grid = static_cast<int>(best_blocks) * kMultiprocessors;
  return CUDA_SUCCESS;
}

}  // namespace

uint32_t MaxBlockThreads(const ptx::Kernel& kernel) {
  return std::min(
      {kernel.max_threads, kMaxBlockThreads, ptx::WarpsThatFit(kernel.registers) * kWarp});
}

uint32_t ResidentBlocks(const Function& function, uint32_t block_threads, uint64_t dynamic_shared) {
  const ptx::Kernel& kernel = *function.kernel;
  if (block_threads == 0 || block_threads > MaxBlockThreads(kernel)) return 0;
  if (dynamic_shared > function.max_dynamic_shared.load()) return 0;
  const uint32_t warps = RoundUp(block_threads, kWarp) / kWarp;
  const uint64_t shared = kernel.static_shared_bytes + dynamic_shared + kReservedSharedBytes;
  const uint64_t taken = (shared + kSharedStep - 1) / kSharedStep * kSharedStep;
  return static_cast<uint32_t>(std::min<uint64_t>(
      {kMultiprocessorBlocks, kMultiprocessorThreads / kWarp / warps,
       ptx::WarpsThatFit(kernel.registers) / warps, kMultiprocessorSharedBytes / taken}));
}

}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle,
                                                     int block_threads,
                                                     size_t dynamic_shared) noexcept {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, handle, block_threads,
                                                              dynamic_shared, 0);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction handle,
                                                              int block_threads,
                                                              size_t dynamic_shared,
                                                              unsigned int flags) noexcept {
  std::shared_ptr<Function> function;
  CU_TRY(FindFunction(handle, &function));
  if (blocks == nullptr || block_threads <= 0 || flags > 1) return CUDA_ERROR_INVALID_VALUE;
  *blocks = static_cast<int>(
      ResidentBlocks(*function, static_cast<uint32_t>(block_threads), dynamic_shared));
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int* min_grid, int* block, CUfunction function,
                                          CUoccupancyB2DSize shared_of, size_t dynamic_shared,
                                          int limit) noexcept {
  return PotentialBlockSize(min_grid, block, function, shared_of, dynamic_shared, limit);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* min_grid, int* block, CUfunction function,
                                                   CUoccupancyB2DSize shared_of,
                                                   size_t dynamic_shared, int limit,
                                                   unsigned int flags) noexcept {
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  return PotentialBlockSize(min_grid, block, function, shared_of, dynamic_shared, limit);
}

// The most that still lets `blocks` of them be resident.
CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction handle, int blocks,
                                                 int block_threads) noexcept {
  std::shared_ptr<Function> function;
  CU_TRY(FindFunction(handle, &function));
  if (bytes == nullptr || blocks <= 0 || block_threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  const uint32_t wanted = static_cast<uint32_t>(blocks);
  if (ResidentBlocks(*function, static_cast<uint32_t>(block_threads), 0) < wanted) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const uint64_t share = kMultiprocessorSharedBytes / wanted / kSharedStep * kSharedStep;
  const uint64_t most = std::min<uint64_t>(share, kSharedBytesOptIn + kReservedSharedBytes);
  // What is fixed may fit, and its share in whole steps be smaller.
  const uint64_t fixed = function->kernel->static_shared_bytes + kReservedSharedBytes;
  *bytes = most > fixed ? most - fixed : 0;
  return CUDA_SUCCESS;
}
