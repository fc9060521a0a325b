// Agent: the one background thread inside a program. It listens to the daemon, does what the lease
// says (drain, swap out, restore, open the gate), watches for idleness while another session waits,
// and finds a new daemon when the old one is gone.
//
// Threading: Start once; Wake from any thread; Stop once. It takes no lock that a thread of the
// program holds while it waits in the driver, and looks up no symbols.
#pragma once

#include <pthread.h>

#include <atomic>
#include <functional>
#include <optional>

#include "src/base/mutex.h"
#include "src/base/time.h"
#include "src/client/lease.h"
#include "src/shim/gate/gate.h"
#include "src/shim/gate/work_tracker.h"
#include "src/shim/link/daemon_link.h"
#include "src/shim/link/shortage.h"
#include "src/shim/memory/alone_job.h"
#include "src/shim/memory/free_fence.h"
#include "src/shim/memory/memory_offers.h"
#include "src/shim/os/own_fd.h"
#include "src/shim/program/program_leases.h"
#include "src/shim/swap/device_memory.h"
#include "src/shim/swap/swapper.h"

namespace tandem::shim {

// What the agent works on. All outlive it.
struct AgentParts {
  const cuda::RealDriver* real;
  CUdevice device;
  DaemonLink* link;
  GateVote* gate;
  WorkTracker* tracker;
  DeviceMemory* memory;
  FreeFence* fence;
  Swapper* swapper;
  ProgramLeases* leases;
  MemoryOffers* offers = nullptr;  // each new daemon has to hear of them
};

class Agent {
 public:
  explicit Agent(const AgentParts& parts) : parts_(parts) {}
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  bool Start();
  void Wake();
  // Runs `job` on the agent's thread at a moment when all memory is on the card, no work is under
  // way and none can come, with the Swapper's lock. One call at a time.
  AloneJob::Answer RunAlone(const AloneJob::Job& job) {
    return alone_.Run(job, [this] { Wake(); });
  }
  // Soon it returns memory that was freed and not taken again.
  void ReturnUnusedReservationSoon();
  // Waits at most a moment for it to finish what it is doing.
  void Stop();
  // In a forked child there is no such thread any more, and who held the lock may be gone too.
  void AbandonInChild() NO_THREAD_SAFETY_ANALYSIS;

 private:
  static void* Main(void* self);
  // After this number of failures in a row.
  static Duration Backoff(Duration first, int failures);
  void Loop();
  Duration Patience() const;
  Duration OrdinaryPatience() const;
  bool OpenWake() EXCLUDES_LOCK(wake_mutex_);
  void Listen(Duration patience);
  void EndIfWaiting();
  void Reconnect();
  void Work();
  client::View GetView() const;
  // Each returns whether it made progress.
  bool Drain();
  bool Evict();
  bool Restore();
  CUresult RestoreSome(Bytes credit) REQUIRES_LOCK(parts_.swapper->mutex());
  CUresult ChillTheRest(CUresult restored, Bytes credit) REQUIRES_LOCK(parts_.swapper->mutex());
  bool Open();
  bool Thaw() REQUIRES_LOCK(parts_.swapper->mutex());
  bool Succeeded(CUresult result, const char* what) REQUIRES_LOCK(parts_.swapper->mutex());
  bool CloseGate(Instant deadline);
  CUresult AwaitWork(Instant deadline);
  AloneJob::Answer TryAlone(const AloneJob::Job& job, Duration patience);
  bool DropBroken() REQUIRES_LOCK(parts_.swapper->mutex());
  void Wait(Duration pause);
  void ServeLeases();
  void Refuse();
  void WatchIdleness();
  bool MayPause(Instant now) const;
  void Publish();
  // In agent_upkeep.cc.
  void ReleaseFreedMemory();
  void ReturnUnusedReservation();
  void KeepHostMemoryReady();
  HostShare ArenaShare() const;
  // In agent_exchange.cc.
  void Exchange();
  // In agent_move.cc.
  void MoveIfTold();

  const AgentParts parts_;
  pthread_t thread_{};
  bool started_ = false;
  // A pair of sockets, since writing to a pipe may raise a signal. Threads of the program write to
  // it, so it is replaced under the lock.
  mutable Mutex wake_mutex_;
  OwnFd wake_in_ GUARDED_BY(wake_mutex_);
  OwnFd wake_out_ GUARDED_BY(wake_mutex_);
  std::atomic<bool> stop_{false};
  std::atomic<bool> stopped_{false};
  std::atomic<bool> woken_{false};       // since it last waited
  std::atomic<bool> unreturned_{false};  // something was freed that has not gone back yet

  AloneJob alone_;

  // The agent's own.
  bool lost_ = false;
  Instant reconnect_at_;
  bool refusal_told_ = false;
  bool waiting_told_ = false;
  bool refuses_ = false;  // calls that would wait
  bool retry_ = false;    // a step failed; try again soon
  int failures_ = 0;      // of swapping, one after the other
  Shortage shortage_{parts_.link};
  bool freeing_ = false;    // the program freed what is not released yet
  bool undrained_ = false;  // the last drain failed; the gate shall be open for a moment
  Bytes copied_in_;         // since the last opening
  bool refused_ = false;    // by the card, since then, and so reached on the host
  bool measuring_ = false;  // events are behind all work seen so far
  bool has_run_ = false;    // under the lease, as of the last look
  uint64_t seen_submits_ = 0;
  Instant quiet_since_;
  Instant trimmed_at_;
  bool host_memory_due_ = false;  // the host memory needs something, or may
  HostShare host_share_;          // for which it was last looked at
  // Dead memory could not be given back, so often in a row, and is tried again then.
  int reaps_failed_ = 0;
  Instant reap_at_;
  Instant return_at_;
  // Of memory that oversubscribes.
  Instant exchange_at_;
  uint64_t exchange_submits_ = 0;  // at the last step
  int exchange_failures_ = 0;      // one after the other
};

}  // namespace tandem::shim
