// What the driver's checkpoints of processes take (CUDA 12.8; pairs of GPUs since 13.0).
#pragma once

#include <cstdint>

#include "src/cuda/driver_types.h"

extern "C" {

enum CUprocessState : int {
  CU_PROCESS_STATE_RUNNING = 0,
  CU_PROCESS_STATE_LOCKED = 1,        // calls of the driver wait
  CU_PROCESS_STATE_CHECKPOINTED = 2,  // and nothing of the process is on a GPU
  CU_PROCESS_STATE_FAILED = 3,
};

// All that is reserved has to be zero.
struct CUcheckpointLockArgs {
  unsigned int timeoutMs;  // 0: waits for work under way without end
  unsigned int reserved0;
  uint64_t reserved1[7];
};
static_assert(sizeof(CUcheckpointLockArgs) == 64);

struct CUcheckpointCheckpointArgs {
  uint64_t reserved[8];
};

struct CUcheckpointGpuPair {
  CUuuid oldUuid;
  CUuuid newUuid;
};
static_assert(sizeof(CUcheckpointGpuPair) == 32);

struct CUcheckpointRestoreArgs {
  CUcheckpointGpuPair* gpuPairs;
  unsigned int gpuPairsCount;
  char reserved[44];
  uint64_t reserved1;
};
static_assert(sizeof(CUcheckpointRestoreArgs) == 64);

struct CUcheckpointUnlockArgs {
  uint64_t reserved[8];
};

}  // extern "C"
