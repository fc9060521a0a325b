// Gate: what every call that submits work passes on its way to the driver. Open, it costs a few
// instructions and no shared write; closing pays instead.
//
// Enter raises the thread's own depth, then looks at the gate; Close shuts the gate, makes all
// threads of the process run a memory barrier, then waits until it has seen every depth at zero. So
// either Enter sees the gate shut, or Close sees the depth. Where the kernel has no such barrier
// the gate opens as kOrdered, and every Enter pays for the order itself.
//
// Threading: Enter, Leave, Shut and Open by any thread; Close by one at a time.
// Invariants
// 1. After Close returned true no thread is between Enter and Leave until Open.
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

  ThreadSlot* Enter(CUstream stream = nullptr) {
    ThreadSlot* slot;
    return EnterIfOpen(&slot) ? slot : EnterSlowly(stream);
  }
  // The usual case, in which no function is called: a known thread that is not inside, and an open
  // gate. Else false, and nothing has happened.
  bool EnterIfOpen(ThreadSlot** slot) {
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
  static void Leave(ThreadSlot* slot) {
    slot->depth.store(slot->depth.load(std::memory_order_relaxed) - 1, std::memory_order_release);
  }
  // The same for whom EnterIfOpen let in.
  static void LeaveWhole(ThreadSlot* slot) { slot->depth.store(0, std::memory_order_release); }

  void Open(bool metered = false);
  // New work waits from here on; work on its way in is not waited for.
  void Shut() { state_.store(kShut, std::memory_order_seq_cst); }
  // Open, and from here on every thread asks the hook first, or no more. Nothing while it is shut.
  void Meter(bool metered) {
    if (metered) {
      Replace(kOpen, kMetered);
      Replace(kOrdered, kMetered);  // from before there was the barrier
    } else {
      Replace(kMetered, Freely());
    }
  }
  // Shut, and nobody is inside any more. False if somebody still was at the deadline: the gate is
  // shut all the same, and the caller decides.
  bool Close(Instant deadline);

  bool open() const { return state_.load(std::memory_order_acquire) != kShut; }
  bool metered() const { return state_.load(std::memory_order_acquire) == kMetered; }
  uint32_t waiting() const { return waiting_.load(std::memory_order_acquire); }

  // Around a fork, so that the child does not find a lock taken by a thread it does not have.
  static void BeforeFork() NO_THREAD_SAFETY_ANALYSIS;
  static void AfterFork() NO_THREAD_SAFETY_ANALYSIS;

  // Of all threads of the process.
  static bool AnyInside();
  static uint64_t Submits();

 private:
  static constexpr uint32_t kOpen = 0, kShut = 1, kMetered = 2, kOrdered = 3;

  static ThreadSlot* RegisterThread();
  static void ReleaseThread(void* slot);
  // How the gate is open to everybody.
  static uint32_t Freely() { return registered() ? kOpen : kOrdered; }
  void Replace(uint32_t from, uint32_t to) {
    state_.compare_exchange_strong(from, to, std::memory_order_seq_cst);
  }
  ThreadSlot* EnterSlowly(CUstream stream);
  void WaitUntilOpen();

  // The library is loaded with the program, so its thread-locals may be at a fixed offset.
  static constinit thread_local ThreadSlot* current_thread
      __attribute__((tls_model("initial-exec")));
  static ThreadSlot unknown_thread;  // of threads that have no slot; nobody enters by it
  static std::atomic<bool> asymmetric;

  const BlockedHook blocked_;
  const MeteredHook metered_;
  void* const context_;
  std::atomic<uint32_t> state_{kShut};
  std::atomic<uint32_t> waiting_{0};
};

}  // namespace tandem::shim
