// Gate: every call that submits work passes it on its way to the driver. An open gate costs a few
// instructions and no shared write; closing pays instead.
//
// Enter raises the thread's own depth, then looks at the gate; Close shuts the gate, makes all
// threads of the process run a memory barrier, then waits until it has seen every depth at zero. So
// either Enter sees the gate shut, or Close sees the depth. Where the kernel has no such barrier
// the gate opens as kOrdered, and every Enter pays for the order itself.
//
// Several hold it, each with a vote: the process itself, until it is known whether anything is
// shared, and one for each device in use. It is open while no vote is for shut. A vote for shut
// may refuse: then no thread waits, and Enter says so.
//
// Threading: Enter, Leave, Shut and Open by any thread; Close by one at a time for each vote.
// Invariants
// 1. After Close returned true no thread is between Enter and Leave until Open with the same vote.
// 2. Only the outermost Enter of a thread waits: a call made inside a gated call never does.
// 3. The gate is kOpen only where Close has that barrier.
#pragma once

#include <atomic>
#include <cstdint>

#include "src/base/mutex.h"
#include "src/base/time.h"
#include "src/cuda/driver_types.h"

namespace tandem::shim {

// What one thread says about itself. Slots are handed on to later threads, never freed.
struct alignas(64) ThreadSlot {
  std::atomic<uint32_t> depth{0};
  std::atomic<uint64_t> submits{0};
  // Of the owning thread alone: the stream it marked last (work_tracker.h).
  CUstream marked_stream = nullptr;
  uint64_t marked_generation = 0;
  // Of the registry, under its lock.
  bool taken = false;
  ThreadSlot* next = nullptr;
};

class Gate {
 public:
  using BlockedHook = void (*)(void* context);
  using MeteredHook = void (*)(void* context, CUstream stream);

  // Shut at first. `blocked` is called by every thread that is about to wait, `metered` by every
  // thread before it submits to `stream` while the gate is metered; both outside of all locks.
  constexpr explicit Gate(BlockedHook blocked = nullptr, void* context = nullptr,
                          MeteredHook metered = nullptr)
      : blocked_(blocked), metered_(metered), context_(context) {}
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // Prepares the barrier; from the next Open on it counts.
  static void RegisterProcess();
  static bool registered() { return asymmetric.load(std::memory_order_relaxed); }

  // Null where the gate is shut and refuses; then nothing is to be left.
  ThreadSlot* Enter(CUstream stream = nullptr) {
    ThreadSlot* slot;
    return EnterIfOpen(&slot) ? slot : EnterSlowly(stream);
  }
  // The usual case, in which no function is called: a known thread that is not inside, and an open
  // gate. Else false, and nothing has happened.
  [[gnu::always_inline]] bool EnterIfOpen(ThreadSlot** slot) {
    *slot = current_thread;
    if ((*slot)->depth.load(std::memory_order_relaxed) != 0) [[unlikely]]
      return false;
    // In this order for the compiler; the barrier of Close does the rest.
    (*slot)->depth.store(1, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (state_.load(std::memory_order_seq_cst) == kOpen) [[likely]]
      return true;
    LeaveWhole(*slot);
    return false;
  }
  [[gnu::always_inline]] static void Leave(ThreadSlot* slot) {
    slot->depth.store(slot->depth.load(std::memory_order_relaxed) - 1, std::memory_order_release);
  }
  // The same for whom EnterIfOpen let in.
  [[gnu::always_inline]] static void LeaveWhole(ThreadSlot* slot) {
    slot->depth.store(0, std::memory_order_release);
  }

  // Whose vote: the process's own, or that of the device with this ordinal.
  using Vote = uint32_t;
  static constexpr Vote kProcess = 0;
  static constexpr uint32_t kMostDevices = 63;
  static constexpr Vote VoteOf(CUdevice device) { return static_cast<Vote>(device) + 1; }

  // Where others still hold it shut, and threads wait, the blocked hook is called once more.
  void Open(bool metered = false, Vote vote = kProcess) EXCLUDES_LOCK(votes_mutex_);
  // New work waits from here on; work on its way in is not waited for.
  void Shut(Vote vote = kProcess) EXCLUDES_LOCK(votes_mutex_);
  // From here on every thread asks the hook first while it is open, or no more. Nothing while the
  // vote is for shut.
  void Meter(bool metered, Vote vote = kProcess) EXCLUDES_LOCK(votes_mutex_);
  // From here on threads that find the gate shut by this vote do not wait, nor those that do
  // already; or they do again.
  void Refuse(bool refuses, Vote vote = kProcess) EXCLUDES_LOCK(votes_mutex_);
  // Shut, and no thread is inside any more. False if one still was at the deadline: the gate is
  // shut nevertheless, and the caller decides.
  bool Close(Instant deadline, Vote vote = kProcess) EXCLUDES_LOCK(votes_mutex_);
  // In a forked child, whose other threads are gone: open for good.
  void OpenInChild() { state_.store(Freely(), std::memory_order_seq_cst); }

  bool open() const { return IsOpen(state_.load(std::memory_order_acquire)); }
  bool IsFor(Vote vote) const { return (shut_.load(std::memory_order_acquire) & Bit(vote)) == 0; }
  // Whether all votes of lower numbers are for open.
  bool AreLowerFor(Vote vote) const {
    return (shut_.load(std::memory_order_acquire) & (Bit(vote) - 1)) == 0;
  }
  bool metered() const { return state_.load(std::memory_order_acquire) == kMetered; }
  uint32_t waiting() const { return waiting_.load(std::memory_order_acquire); }

  // Around a fork, so that the child does not find a lock taken by a thread it does not have.
  static void BeforeFork() NO_THREAD_SAFETY_ANALYSIS;
  static void AfterFork() NO_THREAD_SAFETY_ANALYSIS;

  // Of all threads of the process.
  static bool AnyInside();
  static uint64_t Submits();

 private:
  static constexpr uint32_t kOpen = 0, kShut = 1, kMetered = 2, kOrdered = 3, kRefusing = 4;

  static bool IsOpen(uint32_t state) { return state != kShut && state != kRefusing; }
  static ThreadSlot* RegisterThread();
  static void ReleaseThread(void* slot);
  // The state in which the gate is open to all threads.
  static uint32_t Freely() { return registered() ? kOpen : kOrdered; }
  static constexpr uint64_t Bit(Vote vote) { return uint64_t{1} << vote; }
  void Apply() REQUIRES_LOCK(votes_mutex_);
  ThreadSlot* EnterSlowly(CUstream stream);
  bool WaitUntilOpen();

  // The library is loaded with the program, so its thread-locals may be at a fixed offset.
  static constinit thread_local ThreadSlot* current_thread
      __attribute__((tls_model("initial-exec")));
  static ThreadSlot unknown_thread;  // of threads that have no slot; no thread enters by it
  static std::atomic<bool> asymmetric;

  const BlockedHook blocked_;
  const MeteredHook metered_;
  void* const context_;
  std::atomic<uint32_t> state_{kShut};  // as the votes say, but for a forked child
  Mutex votes_mutex_;
  std::atomic<uint64_t> shut_{Bit(kProcess)};
  uint64_t metered_votes_ GUARDED_BY(votes_mutex_) = 0;
  uint64_t refusing_votes_ GUARDED_BY(votes_mutex_) = 0;
  std::atomic<uint32_t> waiting_{0};
};

// The gate as one of those who hold it sees it.
class GateVote {
 public:
  GateVote(Gate* gate, CUdevice device) : gate_(gate), vote_(Gate::VoteOf(device)) {}

  void Open(bool metered = false) { gate_->Open(metered, vote_); }
  void Shut() { gate_->Shut(vote_); }
  void Meter(bool metered) { gate_->Meter(metered, vote_); }
  void Refuse(bool refuses) { gate_->Refuse(refuses, vote_); }
  bool Close(Instant deadline) { return gate_->Close(deadline, vote_); }
  // As far as it goes by this vote.
  bool open() const { return gate_->IsFor(vote_); }
  // Threads wait, and for this vote rather than for one before it: a program that uses several
  // devices asks for them in one order. A later one that it asked for before may still come.
  bool wanted() const { return gate_->waiting() != 0 && gate_->AreLowerFor(vote_); }
  uint32_t waiting() const { return gate_->waiting(); }

 private:
  Gate* const gate_;
  const Gate::Vote vote_;
};

}  // namespace tandem::shim
