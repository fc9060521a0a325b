// Checkpoint: the states of the process between cuCheckpointProcessLock and Unlock, in which its
// devices leave their cards and may come back on others.
//
// The memory behind a device is the host's in any case and stays where it is: a checkpoint only
// gives the process's share of VRAM back, and a restore takes as much on the card that the device
// is on then. So what keeps an address also keeps its contents.
//
// Threading: any thread. Its mutex comes before all others of the driver.
//
// Invariants:
// 1. While the process is locked no call gets past Ready() but those of checkpoints.
// 2. A restore that fails leaves every device on its card, and the process checkpointed.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "softgpu/card/card.h"
#include "src/base/mutex.h"
#include "src/base/time.h"
#include "src/cuda/driver_types.h"

namespace tandem::soft {

class Driver;

class Checkpoint {
 public:
  // REQUIRES: outlives this.
  explicit Checkpoint(Driver* driver) : driver_(driver) {}

  // Waits while the process is locked.
  void Pass() EXCLUDES_LOCK(mutex_) {
    if (locked_.load(std::memory_order_acquire)) Wait();
  }

  CUprocessState state() const EXCLUDES_LOCK(mutex_);
  // Each is CUDA_ERROR_ILLEGAL_STATE in another state than the one it begins with.
  // Running → locked, once the work under way is done. CUDA_ERROR_NOT_READY: it is not within
  // `patience`, and the process runs on.
  CUresult Lock(std::optional<Duration> patience) EXCLUDES_LOCK(mutex_);
  // Locked → checkpointed. CUDA_ERROR_NOT_SUPPORTED: other processes share memory or events of it.
  CUresult Save() EXCLUDES_LOCK(mutex_);
  // Checkpointed → locked; with pairs each device is on the card of the new UUID. These name the
  // process's cards, all of them and each once, and only cards that are alike change places
  // (CUDA_ERROR_INVALID_VALUE). CUDA_ERROR_OUT_OF_MEMORY: a card has not as much left.
  CUresult Restore(std::span<const CUcheckpointGpuPair> pairs) EXCLUDES_LOCK(mutex_);
  // Locked → running.
  CUresult Unlock() EXCLUDES_LOCK(mutex_);

 private:
  void Wait() EXCLUDES_LOCK(mutex_);
  bool SharesWithOthers();
  // The card of each device after the restore; empty where the pairs make no sense.
  std::vector<Card*> CardsAfter(std::span<const CUcheckpointGpuPair> pairs) const;
  // False, and nothing done, while the process has work under way.
  bool TryWhileIdle(const std::function<void()>& function);
  void MoveTo(const std::vector<Card*>& cards) REQUIRES_LOCK(mutex_);
  bool ChargeAll() REQUIRES_LOCK(mutex_);

  Driver* const driver_;
  mutable Mutex mutex_;
  CondVar unlocked_;
  std::atomic<bool> locked_ = false;
  CUprocessState state_ GUARDED_BY(mutex_) = CU_PROCESS_STATE_RUNNING;
  std::vector<Bytes> held_ GUARDED_BY(mutex_);  // of VRAM, by each device, when checkpointed
};

}  // namespace tandem::soft
