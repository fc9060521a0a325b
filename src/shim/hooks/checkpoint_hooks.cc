// The hooks for checkpoints of processes. A program makes none under Tandem, which moves the
// program's memory, and the program itself (gpu_move.h).
#include "src/shim/hooks/refused_hooks.h"
#include "src/shim/program/process.h"

namespace tandem::shim {
namespace {

CUresult RefuseCheckpoint(const char* symbol) {
  static constinit std::atomic<bool> told{false};
  int count = 0;
  const CUresult state = Call(Real().cuDeviceGetCount, &count);
  if (state == CUDA_ERROR_NOT_INITIALIZED || state == CUDA_ERROR_DEINITIALIZED) return state;
  return RefuseCall(symbol, "takes programs off the card, which is Tandem's to do", &told);
}

}  // namespace
}  // namespace tandem::shim

using tandem::shim::RefuseCheckpoint;

CUresult cuCheckpointProcessGetState(int, CUprocessState*) noexcept {
  return RefuseCheckpoint("cuCheckpointProcessGetState");
}

CUresult cuCheckpointProcessLock(int, CUcheckpointLockArgs*) noexcept {
  return RefuseCheckpoint("cuCheckpointProcessLock");
}

CUresult cuCheckpointProcessCheckpoint(int, CUcheckpointCheckpointArgs*) noexcept {
  return RefuseCheckpoint("cuCheckpointProcessCheckpoint");
}

CUresult cuCheckpointProcessRestore(int, CUcheckpointRestoreArgs*) noexcept {
  return RefuseCheckpoint("cuCheckpointProcessRestore");
}

CUresult cuCheckpointProcessUnlock(int, CUcheckpointUnlockArgs*) noexcept {
  return RefuseCheckpoint("cuCheckpointProcessUnlock");
}
