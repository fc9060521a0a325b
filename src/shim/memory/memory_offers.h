// MemoryOffers: blocks of the program that other processes may open by cuIpcGetMemHandle.
//
// Memory in chunks, which comes and goes, cannot be given to others. So the extent of such a block
// (all of its page, where it is small) is moved into one piece of memory at the same address, which
// stays on the card from then on and counts as fixed. The daemon has a descriptor of it for those
// who open the handle, until the extent is freed.
//
// Threading: any thread; Offer may wait for room on the card, for the lease, and for work under
// way. Invariants
// 1. An extent is offered at most once; its handles differ in where the block lies.
// 2. An offer is withdrawn before the memory that it counts for is given back.
// 3. What the daemon did not hear of it is told as soon as it listens; what it will not have is
//    forgotten, and the program told so.
// 4. An extent that is being offered is held: whatever the program frees meanwhile, it is gone only
//    afterwards, and its offer with it.
#pragma once

#include <atomic>
#include <functional>
#include <map>

#include "src/base/mutex.h"
#include "src/base/time.h"
#include "src/base/unique_fd.h"
#include "src/cuda/real_driver.h"
#include "src/shim/link/daemon_link.h"
#include "src/shim/link/ipc_handle.h"
#include "src/shim/memory/alone_job.h"
#include "src/shim/memory/fixed_memory.h"
#include "src/shim/memory/reclaim.h"
#include "src/shim/swap/device_memory.h"
#include "src/shim/swap/swapper.h"

namespace tandem::shim {

class MemoryOffers {
 public:
  // What it works on, and what the guest does for it.
  struct Parts {
    const cuda::RealDriver* real;
    CUdevice device;
    DaemonLink* link;
    DeviceMemory* memory;
    Swapper* swapper;
    FixedMemory* fixed;
    Reclaim* reclaim;
    std::function<void(Bytes)> shrink;                                // less is needed; reaps
    std::function<AloneJob::Answer(const AloneJob::Job&)> run_alone;  // as the agent does
  };

  explicit MemoryOffers(Parts parts) : parts_(std::move(parts)) {}

  // Whether the driver can export memory at all.
  bool Supported() const;
  // The handle of the block around `pointer`, which is not a pool's. CUDA_ERROR_INVALID_VALUE:
  // there is none; CUDA_ERROR_OUT_OF_MEMORY: there is no room for it, or it cannot be moved.
  // `await_lease` waits until the gate is open, which it may no longer be afterwards.
  using AwaitLease = std::function<void()>;
  CUresult Offer(CUdeviceptr pointer, const AwaitLease& await_lease, CUipcMemHandle* handle)
      EXCLUDES_LOCK(mutex_);
  bool Has(const OfferToken& token) const EXCLUDES_LOCK(mutex_);

  // An extent that was shared is unmapped.
  void OnGone(const Extent& extent) REQUIRES_LOCK(parts_.swapper->mutex()) EXCLUDES_LOCK(mutex_);
  // There is another daemon, which knows of no offers. The agent's.
  void OfferAgain() EXCLUDES_LOCK(mutex_);
  // Tells the daemon of offers that it has not heard of, unless that was tried only just now. The
  // agent's.
  void TellUntold() EXCLUDES_LOCK(mutex_);

 private:
  using Home = DeviceMemory::Home;

  CUresult OfferHeld(const Home& home, const AwaitLease& await_lease, OfferToken* token)
      EXCLUDES_LOCK(mutex_);
  CUipcMemHandle HandleOf(const Home& home, const OfferToken& token) const;
  struct Offered {
    enum class State { kAsking, kTold, kUntold };

    OfferToken token;
    State state = State::kAsking;
    bool warned = false;  // that it could not be told
  };

  CUresult Tell(const Home& home, const OfferToken& token, const UniqueFd& memory)
      EXCLUDES_LOCK(mutex_);
  Status TellAgain(CUdeviceptr extent, const OfferToken& token)
      REQUIRES_LOCK(parts_.swapper->mutex());
  void CountUntold() REQUIRES_LOCK(mutex_);
  CUresult Share(const Home& home, const AwaitLease& await_lease, UniqueFd* memory);
  CUresult MoveAlone(const Home& home, const AwaitLease& await_lease, UniqueFd* memory);
  CUresult Move(const Home& home, UniqueFd* memory) REQUIRES_LOCK(parts_.swapper->mutex());
  CUresult Export(CUmemGenericAllocationHandle piece, UniqueFd* memory) const;

  const Parts parts_;
  Mutex offering_;  // one at a time
  mutable Mutex mutex_;
  // By the extent's address.
  std::map<CUdeviceptr, Offered> offers_ GUARDED_BY(mutex_);
  std::atomic<bool> has_untold_{false};
  Instant tell_at_;  // the agent's
};

}  // namespace tandem::shim
