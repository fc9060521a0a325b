// What the mover says to the driver, and what it makes of its answers.
#include "src/shim/driver/gpu_move.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "src/cuda/uuid.h"

namespace tandem::shim {
namespace {

// A driver with two GPUs, and what it is asked.
struct Script {
  int version = 13000;
  CUresult lock = CUDA_SUCCESS, save = CUDA_SUCCESS;
  std::vector<CUresult> restores;  // the next first; then success
  std::vector<std::string> calls;
  bool own = true;  // all were about this process
};
Script* script = nullptr;

CUuuid Uuid(int device) {
  CUuuid uuid = {};
  std::memset(&uuid, device + 1, sizeof(uuid));
  return uuid;
}

std::string NameOf(const CUuuid& uuid) {
  return std::to_string(uuid.bytes[0] - 1);
}

CUresult Note(int pid, const std::string& call, CUresult result) {
  script->own = script->own && pid == getpid();
  script->calls.push_back(call);
  return result;
}

cuda::RealDriver Scripted() {
  cuda::RealDriver real;
  real.cuDriverGetVersion = [](int* version) noexcept {
    *version = script->version;
    return CUDA_SUCCESS;
  };
  real.cuDeviceGetCount = [](int* count) noexcept {
    *count = 2;
    return CUDA_SUCCESS;
  };
  real.cuDeviceGetUuid_v2 = [](CUuuid* uuid, CUdevice device) noexcept {
    *uuid = Uuid(device);
    return CUDA_SUCCESS;
  };
  real.cuCheckpointProcessLock = [](int pid, CUcheckpointLockArgs* args) noexcept {
    EXPECT_GT(args->timeoutMs, 0u);
    return Note(pid, "lock", script->lock);
  };
  real.cuCheckpointProcessCheckpoint = [](int pid, CUcheckpointCheckpointArgs*) noexcept {
    return Note(pid, "save", script->save);
  };
  real.cuCheckpointProcessRestore = [](int pid, CUcheckpointRestoreArgs* args) noexcept {
    std::string call = "restore";
    for (unsigned int i = 0; i < args->gpuPairsCount; ++i) {
      const CUcheckpointGpuPair& pair = args->gpuPairs[i];
      call += " " + NameOf(pair.oldUuid) + ">" + NameOf(pair.newUuid);
    }
    CUresult result = CUDA_SUCCESS;
    if (!script->restores.empty()) {
      result = script->restores.front();
      script->restores.erase(script->restores.begin());
    }
    return Note(pid, call, result);
  };
  real.cuCheckpointProcessUnlock = [](int pid, CUcheckpointUnlockArgs*) noexcept {
    return Note(pid, "unlock", CUDA_SUCCESS);
  };
  return real;
}

class GpuMoveTest : public testing::Test {
 protected:
  GpuMoveTest() { script = &script_; }
  // Of what the process has on GPU 0, to GPU 1; what was wrong.
  std::string Move(const std::string& to = cuda::FormatUuid(Uuid(1))) {
    const Status moved = MoveToGpu(real_, 0, to);
    EXPECT_TRUE(script_.own);
    return moved.ok() ? "" : moved.error().message;
  }
  using Calls = std::vector<std::string>;

  Script script_;
  cuda::RealDriver real_ = Scripted();
};

TEST_F(GpuMoveTest, TheGpusChangePlaces) {
  EXPECT_EQ(Move(), "");
  EXPECT_EQ(script_.calls, (Calls{"lock", "save", "restore 0>1 1>0", "unlock"}));
}

TEST_F(GpuMoveTest, OldDriversCannot) {
  script_.version = 12080;
  EXPECT_EQ(Move(), "the driver cannot move programs, which takes version 580 or newer");
  script_.version = 13000;
  real_.cuCheckpointProcessRestore = nullptr;
  EXPECT_EQ(Move(), "the driver cannot move programs, which takes version 580 or newer");
  EXPECT_EQ(script_.calls, Calls{});
}

TEST_F(GpuMoveTest, TheProgramHasToSeeTheOtherGpu) {
  EXPECT_NE(Move(cuda::FormatUuid(Uuid(2))).find("does not see that GPU"), std::string::npos);
  EXPECT_EQ(script_.calls, Calls{});
}

TEST_F(GpuMoveTest, WorkThatDoesNotEndKeepsIt) {
  script_.lock = CUDA_ERROR_NOT_READY;
  EXPECT_EQ(Move(), "the driver cannot lock the process (CUDA_ERROR_NOT_READY)");
  EXPECT_EQ(script_.calls, Calls{"lock"});
}

TEST_F(GpuMoveTest, WhatCannotBeTakenOffGoesOn) {
  script_.save = CUDA_ERROR_NOT_SUPPORTED;
  EXPECT_EQ(Move(), "the driver cannot take the process from its GPU (CUDA_ERROR_NOT_SUPPORTED)");
  EXPECT_EQ(script_.calls, (Calls{"lock", "save", "unlock"}));
}

TEST_F(GpuMoveTest, WhatDoesNotFitGoesBackToItsGpu) {
  script_.restores = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_OPERATING_SYSTEM};
  EXPECT_EQ(Move(), "the driver cannot put the process onto that GPU (CUDA_ERROR_OUT_OF_MEMORY)");
  EXPECT_EQ(script_.calls, (Calls{"lock", "save", "restore 0>1 1>0", "restore 0>0 1>1",
                                  "restore 0>0 1>1", "unlock"}));
}

TEST_F(GpuMoveTest, SaysWhereTheDriverHasLostIt) {
  script_.restores.assign(9, CUDA_ERROR_OPERATING_SYSTEM);
  EXPECT_EQ(Move(),
            "the driver cannot put the process back onto its GPU (CUDA_ERROR_OPERATING_SYSTEM)");
  EXPECT_EQ(script_.calls.back(), "restore 0>0 1>1");  // nothing is unlocked that is not there
}

}  // namespace
}  // namespace tandem::shim
