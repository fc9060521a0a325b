#include "src/shim/driver/gpu_move.h"

#include <unistd.h>

#include <utility>
#include <vector>

#include "src/cuda/uuid.h"

namespace tandem::shim {
namespace {

constexpr int kPairsSince = 13000;                   // of CUDA
constexpr unsigned int kLockPatienceMs = 10 * 1000;  // for calls and work that others began
constexpr int kMostRestores = 3;                     // onto the GPU that it came from

bool HasCheckpoints(const cuda::RealDriver& real) {
  int version = 0;
  return real.cuCheckpointProcessLock != nullptr && real.cuCheckpointProcessCheckpoint != nullptr &&
         real.cuCheckpointProcessRestore != nullptr && real.cuCheckpointProcessUnlock != nullptr &&
         real.cuDriverGetVersion(&version) == CUDA_SUCCESS && version >= kPairsSince;
}

Error Failed(const char* what, CUresult result) {
  const char* const name = cuda::ErrorName(result);
  return Error{ErrorCode::kFailed, std::string("the driver cannot ") + what + " (" +
                                       (name != nullptr ? name : std::to_string(result)) + ")"};
}

// All GPUs that the process sees, as the driver wants it.
Result<std::vector<CUcheckpointGpuPair>> PairsFor(const cuda::RealDriver& real, CUdevice device,
                                                  const std::string& uuid) {
  int count = 0;
  if (const CUresult result = real.cuDeviceGetCount(&count); result != CUDA_SUCCESS) {
    return Failed("count its GPUs", result);
  }
  std::vector<CUcheckpointGpuPair> pairs;
  size_t target = count;
  for (int each = 0; each < count; ++each) {
    const CUuuid own = cuda::UuidOf(real, each);
    if (cuda::FormatUuid(own) == uuid) target = each;
    pairs.push_back({own, own});
  }
  if (target == pairs.size()) {
    return Error{ErrorCode::kNotFound,
                 "the program does not see that GPU. Containers see all that they are started "
                 "with, as by --device nvidia.com/gpu=all"};
  }
  std::swap(pairs[device].newUuid, pairs[target].newUuid);
  return pairs;
}

CUresult Restore(const cuda::RealDriver& real, std::vector<CUcheckpointGpuPair>* pairs) {
  CUcheckpointRestoreArgs args = {};
  args.gpuPairs = pairs->data();
  args.gpuPairsCount = static_cast<unsigned int>(pairs->size());
  return real.cuCheckpointProcessRestore(getpid(), &args);
}

}  // namespace

Status MoveToGpu(const cuda::RealDriver& real, CUdevice device, const std::string& uuid) {
  if (!HasCheckpoints(real)) {
    return Error{ErrorCode::kUnsupported,
                 "the driver cannot move programs, which takes version 580 or newer"};
  }
  ASSIGN_OR_RETURN(std::vector<CUcheckpointGpuPair> pairs, PairsFor(real, device, uuid));
  CUcheckpointLockArgs lock = {};
  lock.timeoutMs = kLockPatienceMs;
  CUcheckpointCheckpointArgs save = {};
  CUcheckpointUnlockArgs unlock = {};
  CUresult result = real.cuCheckpointProcessLock(getpid(), &lock);
  if (result != CUDA_SUCCESS) return Failed("lock the process", result);
  result = real.cuCheckpointProcessCheckpoint(getpid(), &save);
  if (result != CUDA_SUCCESS) {
    real.cuCheckpointProcessUnlock(getpid(), &unlock);
    return Failed("take the process from its GPU", result);
  }
  const CUresult moved = Restore(real, &pairs);
  if (moved != CUDA_SUCCESS) {
    for (CUcheckpointGpuPair& pair : pairs) pair.newUuid = pair.oldUuid;
    CUresult back = moved;
    for (int i = 0; i < kMostRestores && back != CUDA_SUCCESS; ++i) back = Restore(real, &pairs);
    if (back != CUDA_SUCCESS) return Failed("put the process back onto its GPU", back);
  }
  result = real.cuCheckpointProcessUnlock(getpid(), &unlock);
  if (moved != CUDA_SUCCESS) return Failed("put the process onto that GPU", moved);
  return result == CUDA_SUCCESS ? Status() : Failed("let the process go on", result);
}

}  // namespace tandem::shim
