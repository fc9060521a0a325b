// Entry points: checkpoints of the process, by which its devices may change cards. Only of the
// calling process: NVIDIA's driver takes any that the caller may trace.
#include <unistd.h>

#include <span>

#include "softgpu/driver/driver.h"
#include "src/cuda/driver_api.h"

namespace tandem::soft {
namespace {

CUresult Find(int pid, Checkpoint** checkpoint) {
  CU_TRY(Usable());
  if (pid != getpid()) return CUDA_ERROR_INVALID_VALUE;
  *checkpoint = &TheDriver().checkpoint;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuCheckpointProcessGetState(int pid, CUprocessState* state) noexcept {
  Checkpoint* checkpoint = nullptr;
  CU_TRY(Find(pid, &checkpoint));
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = checkpoint->state();
  return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs* args) noexcept {
  Checkpoint* checkpoint = nullptr;
  CU_TRY(Find(pid, &checkpoint));
  std::optional<Duration> patience;
  if (args != nullptr && args->timeoutMs != 0) patience = Milliseconds(args->timeoutMs);
  return checkpoint->Lock(patience);
}

CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs*) noexcept {
  Checkpoint* checkpoint = nullptr;
  CU_TRY(Find(pid, &checkpoint));
  return checkpoint->Save();
}

CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs* args) noexcept {
  Checkpoint* checkpoint = nullptr;
  CU_TRY(Find(pid, &checkpoint));
  std::span<const CUcheckpointGpuPair> pairs;
  if (args != nullptr && args->gpuPairsCount != 0) {
    if (args->gpuPairs == nullptr) return CUDA_ERROR_INVALID_VALUE;
    pairs = {args->gpuPairs, args->gpuPairsCount};
  }
  return checkpoint->Restore(pairs);
}

CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs*) noexcept {
  Checkpoint* checkpoint = nullptr;
  CU_TRY(Find(pid, &checkpoint));
  return checkpoint->Unlock();
}
