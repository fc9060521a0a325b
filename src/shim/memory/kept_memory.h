// KeptMemory: a store of the driver's that takes memory from the card by itself and keeps some of
// the freed memory, as that of graphs. It cannot be swapped, and only the driver knows how large it
// is.
//
// Before a call that may make the store grow, MakeRoom; after the call Recount counts what the
// store really has by then.
//
// Threading: any. While one thread waits for room, others that want some wait with it.
// Invariant: memory counted here has room at the daemon, and goes back once.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <utility>

#include "src/base/bytes.h"
#include "src/base/mutex.h"
#include "src/shim/memory/fixed_memory.h"

namespace tandem::shim {

class KeptMemory {
 public:
  // What the driver says of the store; asked under this class's lock.
  struct Store {
    std::function<Bytes()> reserved;  // what it takes from the card
    std::function<Bytes()> used;      // of that, what the program has
  };

  KeptMemory(FixedMemory* fixed, Store store) : fixed_(fixed), store_(std::move(store)) {}

  // Waits until the program may use these bytes more. False: there is no room for them.
  bool MakeRoom(Bytes more) EXCLUDES_LOCK(mutex_);
  // `room`: of MakeRoom, which is not needed any more. Does not wait: growth of the store without
  // room counts once the daemon has made room.
  void Recount(Bytes room = {}) EXCLUDES_LOCK(mutex_);

  // Nothing counts, or is asked for: there is nothing to recount unless a call had room made for
  // it.
  bool empty() const { return counted() == Bytes() && !asking_.load(std::memory_order_relaxed); }
  Bytes counted() const { return Bytes(counted_.load(std::memory_order_relaxed)); }

 private:
  // What was asked for without waiting.
  struct Asked {
    uint64_t ticket = 0;
    Bytes bytes;
  };

  void HearAnswer() REQUIRES_LOCK(mutex_);
  void Count(Bytes bytes) REQUIRES_LOCK(mutex_) {
    counted_.store(bytes.count, std::memory_order_relaxed);
  }

  FixedMemory* const fixed_;
  const Store store_;
  Mutex mutex_;  // held while waiting for the daemon's answer
  std::optional<Asked> asked_ GUARDED_BY(mutex_);
  std::atomic<bool> asking_{false};    // the same, for those without the lock
  std::atomic<uint64_t> promised_{0};  // bytes: room for calls that are under way
  std::atomic<uint64_t> counted_{0};   // bytes; changed under the lock
};

}  // namespace tandem::shim
