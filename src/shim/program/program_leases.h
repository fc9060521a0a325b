// ProgramLeases: the leases that the program itself begins and ends (include/tandem/tandem.h) on
// one GPU. While one is begun, short pauses do not give the card away; the last end is told to the
// daemon at once.
//
// Threading: Begin, Await, Cancel and End by any thread, Cancel also by a signal handler; the rest
// by the agent.
//
// Invariants
// 1. A lease is granted once at most for each Begin, and not after Cancel or End.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/mutex.h"
#include "src/base/time.h"
#include "src/wire/messages.h"

namespace tandem::shim {

class ProgramLease {
 public:
  // What the program says of the work that the lease is for.
  explicit ProgramLease(const wire::Declare& declared) : declared_(declared) {}
  ProgramLease(const ProgramLease&) = delete;
  ProgramLease& operator=(const ProgramLease&) = delete;

  enum class State : uint32_t {
    kEnded,      // or never begun
    kWaiting,    // begun, and not granted yet
    kGranted,    // begun
    kCancelled,  // while it waited, or before the next Begin
  };
  State state() const { return static_cast<State>(state_.load(std::memory_order_acquire)); }
  // Until it is granted or cancelled, a signal handler has run, or `most` has passed. Whether a
  // signal ended it.
  bool Await(Duration most) const;
  // Ends the wait, or the next one.
  void Cancel();

 private:
  friend class ProgramLeases;
  bool Change(State from, State to);

  const wire::Declare declared_;
  std::atomic<uint32_t> state_{0};
};

class ProgramLeases {
 public:
  // `declare` is called with what the program says of its work, before it is acted on.
  using DeclareHook = std::function<void(const wire::Declare&)>;
  explicit ProgramLeases(DeclareHook declare) : declare_(std::move(declare)) {}

  // It waits from here on; or it has been cancelled before.
  void Begin(ProgramLease* lease) EXCLUDES_LOCK(mutex_);
  // Also where it still waits, or was cancelled.
  void End(ProgramLease* lease) EXCLUDES_LOCK(mutex_);
  // In a forked child: the parent's leases are none of its own.
  void AbandonInChild() NO_THREAD_SAFETY_ANALYSIS;

  // Grants all that wait.
  void Grant() EXCLUDES_LOCK(mutex_);
  bool waiting() const { return waiting_.load(std::memory_order_acquire) != 0; }
  // Begun, granted or not.
  uint32_t begun() const { return begun_.load(std::memory_order_acquire); }
  // The most memory that any of them declares.
  Bytes reserved() const { return Bytes(reserved_.load(std::memory_order_acquire)); }
  // Whether one has ended before it was granted, since the last call.
  bool TakeGivenUp() { return given_up_.exchange(false); }
  // The last lease has ended, and the daemon has not been told that the program is idle.
  bool over() const { return over_.load(std::memory_order_acquire); }
  void SetOver(bool over) { over_.store(over, std::memory_order_release); }

 private:
  void Count() REQUIRES_LOCK(mutex_);

  const DeclareHook declare_;
  Mutex mutex_;
  std::vector<ProgramLease*> leases_ GUARDED_BY(mutex_);  // begun, in that order
  std::atomic<uint32_t> begun_{0}, waiting_{0};
  std::atomic<uint64_t> reserved_{0};
  std::atomic<bool> over_{false}, given_up_{false};
};

}  // namespace tandem::shim
