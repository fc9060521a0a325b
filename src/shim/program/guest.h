// Guest: everything libtandem.so does inside one process, for one GPU, behind the hooked calls.
//
// A guest exists from the first context on its device on (or, where there is but one device, a
// question for its size). A program that uses several has one for each.
//
// Threading: any thread.
// Invariants
// 1. Only what the real driver would return is returned; OUT_OF_MEMORY beyond the run's limit.
// 2. A call never waits with a lock held that another call needs, but where it says so.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "src/base/mutex.h"
#include "src/cuda/real_driver.h"
#include "src/shim/gate/gate.h"
#include "src/shim/gate/work_tracker.h"
#include "src/shim/link/daemon_link.h"
#include "src/shim/memory/driver_pools.h"
#include "src/shim/memory/fixed_memory.h"
#include "src/shim/memory/free_fence.h"
#include "src/shim/memory/graph_memory.h"
#include "src/shim/memory/memory_offers.h"
#include "src/shim/memory/opened_memory.h"
#include "src/shim/memory/reclaim.h"
#include "src/shim/memory/stream_pools.h"
#include "src/shim/memory/vmm_memory.h"
#include "src/shim/program/agent.h"
#include "src/shim/program/program_leases.h"
#include "src/shim/swap/device_memory.h"
#include "src/shim/swap/swapper.h"
#include "src/shim/swap/unleased_access.h"

namespace tandem::shim {

class Guest final : public Reclaim {
 public:
  // Registers with the daemon; the gate is shut from then on until there is a lease.
  static Result<std::unique_ptr<Guest>> Open(const cuda::RealDriver* real, Gate* gate,
                                             WorkTracker* tracker, CUdevice device,
                                             Identity identity);
  ~Guest();
  Guest(const Guest&) = delete;
  Guest& operator=(const Guest&) = delete;

  CUdevice device() const { return device_; }
  void Wake() { agent_->Wake(); }
  void AbandonInChild();

  // ---- Contexts. Each credit is for one context on the card.
  bool WaitForContext() { return link_.WaitForContext(); }
  void ContextNotMade() { link_.ContextGone(); }
  void ContextMade(CUcontext context) EXCLUDES_LOCK(contexts_mutex_) { Know(context, true); }
  bool Has(CUcontext context) const EXCLUDES_LOCK(contexts_mutex_);
  // Before the driver destroys it: nothing of ours is left in it afterwards. Returns whether it has
  // a credit, to be given back by ContextEnded.
  bool ContextEnds(CUcontext context) EXCLUDES_LOCK(contexts_mutex_);
  void ContextEnded(bool credited) {
    if (credited) link_.ContextGone();
    graphs_.Recount();
  }

  // The current context, of another device, may use what `context` has, or no longer. As long as
  // one of that device's contexts may, all of them reach everything.
  void SetPeer(CUcontext context, bool reaches) EXCLUDES_LOCK(contexts_mutex_, peers_mutex_);
  // The same for another device and the blocks of a pool.
  void SetPoolPeer(CUmemoryPool pool, CUdevice peer, bool reaches) EXCLUDES_LOCK(peers_mutex_);
  // The context is about to end, and what leave it has and has given with it.
  void PeerEnds(CUcontext context) EXCLUDES_LOCK(peers_mutex_);

  // ---- Memory. REQUIRES: `context` is current and of device().
  // What the driver would say to an allocation: a context that is broken or destroyed answers
  // everything with its error, and a capture that forbids an allocation is broken by one.
  CUresult Health(CUcontext context) EXCLUDES_LOCK(contexts_mutex_);
  CUresult Allocate(uint64_t bytes, CUcontext context, CUdeviceptr* pointer)
      EXCLUDES_LOCK(page_mutex_);
  // Waits for the work of the block's context, but not during a capture: what work under way may
  // still use is needed until that is done. Nothing if the block is not one of ours.
  std::optional<CUresult> Free(CUdeviceptr pointer);
  // The same for a stream-ordered free, which waits for nothing. Nothing if a pool has the block.
  std::optional<CUresult> FreeInOrder(CUdeviceptr pointer);
  StreamPools& pools() { return *pools_; }
  VmmMemory& vmm() { return *vmm_; }
  GraphMemory& graphs() { return graphs_; }
  DriverPools& driver_pools() { return driver_pools_; }
  MemoryOffers& offers() { return *offers_; }
  OpenedMemory& opened() { return opened_; }
  std::optional<Block> Find(CUdeviceptr pointer) const { return memory_->Find(pointer); }
  bool Owns(CUdeviceptr pointer) const { return memory_->Owns(pointer); }
  // Whether that is memory of the device's, as far as we know of it.
  bool OnDevice(CUdeviceptr pointer) const {
    return Find(pointer).has_value() || vmm_->Find(pointer).has_value() ||
           opened_.Find(pointer).has_value();
  }
  // A launch was given a word that may be an address. Whether it is one here.
  bool NoteNamedByLaunch(CUdeviceptr pointer) {
    return memory_->NoteNamedByLaunch(pointer) || memory_->NoteNamedByLaunch(vmm_->HomeOf(pointer));
  }
  bool oversubscribes() const { return link_.most_resident().has_value(); }
  FixedMemory& fixed() { return fixed_; }
  // Waits for room for what cannot be swapped, to be put into fixed() or given back. False: the
  // driver would say that memory is out.
  bool MakeRoom(Bytes bytes) override {
    return Retry([&] { return fixed_.Reserve(bytes); });
  }
  bool MakeRoom(const FixedMemory::Piece& piece) {
    return Retry([&] { return fixed_.Reserve(piece); });
  }
  // No work of the program's is under way, as far as this device knows: the gate was shut and all
  // was done, or nothing ever began.
  bool Drained();
  UnleasedAccess& access() { return *access_; }
  bool GiveWay() override;
  // ---- Leases that the program itself begins and ends (include/tandem/tandem.h).
  void BeginLease(ProgramLease* lease);
  void EndLease(ProgramLease* lease);
  // Its memory may leave the card now. False while a lease lasts.
  bool LeaveCard();
  // How it stands.
  struct Standing {
    bool holds = false, contended = false, suspended = false;
    uint32_t leases = 0;  // begun
    Bytes allocated, resident, swapped;
  };
  Standing GetStanding() const;

  Bytes limit() const { return link_.limit(); }
  // Whether what would wait for the lease is told that it cannot be had.
  bool refuses() const { return link_.refuses(); }
  Bytes used() const { return SaturatingSubtract(link_.used(), memory_->kept()); }

 private:
  Guest(const cuda::RealDriver* real, Gate* gate, WorkTracker* tracker, CUdevice device,
        const Identity& identity);

  // `credited`: made through us. Others, made by calls we do not know, show up when they allocate.
  void Know(CUcontext context, bool credited) EXCLUDES_LOCK(contexts_mutex_);
  bool OnlyBrokenAreLeft() EXCLUDES_LOCK(contexts_mutex_);
  StreamPools::Source PoolSource();
  VmmMemory::Source VmmSource();
  MemoryOffers::Parts OfferParts();
  UnleasedAccess::Source AccessSource();
  std::optional<UnleasedAccess::Parts> FindParts(CUdeviceptr pointer, uint64_t bytes) const;
  bool AllocateFromPage(uint64_t bytes, CUcontext context, DeviceMemory::Slots slots,
                        CUdeviceptr* pointer);
  CUresult AllocateExtent(uint64_t bytes, CUcontext context, CUdeviceptr* pointer);
  // Reserves the bytes and has the extent added and backed: at once if it can be, or before the
  // gate is passed again. `add` gives its address; `remove` gives all of it back where there turns
  // out to be no room.
  CUresult Grow(Bytes bytes, const std::function<CUresult(CUdeviceptr*)>& add,
                const std::function<void()>& remove);
  void Unreserve(Bytes shrunk);
  bool FreePages();
  // False if that block is gone. `unused`: no work under way may use it.
  bool Release(CUdeviceptr pointer, uint64_t id, bool unused);
  void Freed(Bytes shrunk, bool unused);
  // All its work is seen to be done, and nothing has broken it.
  bool IsQuiet(CUcontext context) const;
  // CUDA_ERROR_NOT_READY: it is left to the agent. CUDA_ERROR_OUT_OF_MEMORY: it cannot be.
  CUresult BackNow(CUdeviceptr address);
  bool IsFull();
  void ShutIfMissing();
  void WakeIfConcerned();
  CUresult Synchronize(CUcontext context);
  void ReapSoon();
  // Lets `peer` reach all memory iff one of its leaves is left.
  void UpdateReach(CUdevice peer) REQUIRES_LOCK(peers_mutex_);

  const cuda::RealDriver* const real_;
  GateVote vote_;
  WorkTracker* const tracker_;
  const CUdevice device_;
  Bytes chunk_;  // as swapped
  DaemonLink link_;
  FixedMemory fixed_{&link_};
  GraphMemory graphs_{real_, device_, &fixed_};
  DriverPools driver_pools_{real_, &fixed_};
  OpenedMemory opened_{real_, device_, &fixed_, this};
  std::unique_ptr<DeviceMemory> memory_;
  std::unique_ptr<FreeFence> fence_;
  std::unique_ptr<StreamPools> pools_;
  std::unique_ptr<Swapper> swapper_;
  std::unique_ptr<VmmMemory> vmm_;
  std::unique_ptr<MemoryOffers> offers_;
  std::unique_ptr<UnleasedAccess> access_;
  ProgramLeases leases_{[this](const wire::Declare& declared) {
    link_.With([&](client::Lease& lease) { lease.Declare(declared); });
  }};
  std::unique_ptr<Agent> agent_;

  Mutex page_mutex_;  // held, before every other lock, while a page is added for small blocks
  // Held, before all but that one, while an extent comes or goes: threads that need the same few
  // locks for it take turns here, rather than at each of them.
  Mutex extent_mutex_;
  mutable Mutex contexts_mutex_;
  std::map<CUcontext, bool> contexts_ GUARDED_BY(contexts_mutex_);  // → credited
  // One of them, mostly the only one, for those who need no lock to find it known.
  std::atomic<CUcontext> known_context_{nullptr};
  Mutex peers_mutex_;                             // held while access is set, before the swap lock
  using Leave = std::pair<CUcontext, CUcontext>;  // of ours, for one of theirs
  struct Peer {
    std::set<Leave> contexts;
    std::set<CUmemoryPool> pools;
    bool reaches = false;
  };
  std::map<CUdevice, Peer> peers_ GUARDED_BY(peers_mutex_);
};

}  // namespace tandem::shim
