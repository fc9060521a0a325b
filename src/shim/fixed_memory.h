// FixedMemory: what the program has on the card that cannot be swapped, beside its contexts:
// arrays, managed memory, what it has exported. The daemon makes room before the driver takes it,
// counts it for the run's limit, and is told when it is free again.
//
// Threading: any.
// Invariant: what is counted here has room at the daemon, and goes back once, when the object or
// its context is gone.
#pragma once

#include <map>

#include "src/base/bytes.h"
#include "src/base/mutex.h"
#include "src/cuda/driver_types.h"
#include "src/shim/daemon_link.h"

namespace tandem::shim {

class FixedMemory {
 public:
  struct Piece {
    CUcontext context = nullptr;
    Bytes bytes;
  };

  explicit FixedMemory(DaemonLink* link) : link_(link) {}

  // Waits for room. False: the driver would say that memory is out.
  bool Reserve(Bytes bytes) { return link_->WaitForFixed(bytes); }
  // For what the driver has taken already: nobody waits for that. Poll with the ticket; granted, it
  // counts.
  uint64_t Ask(Bytes bytes) { return link_->AskForFixed(bytes); }
  client::Answer Poll(uint64_t ticket) { return link_->PollFixed(ticket); }
  void GiveBack(Bytes bytes) {
    if (bytes > Bytes()) link_->FixedGone(bytes);
  }

  // `object`: the driver's handle for what has been made in reserved room, or its address: the
  // handles are addresses of the program's, too.
  void Put(const void* object, const Piece& piece) EXCLUDES_LOCK(mutex_);
  // Forgets it, before the driver may give the same handle to another; empty where it is unknown.
  Piece Take(const void* object) EXCLUDES_LOCK(mutex_);
  // Forgets what was made in the context, before the driver may give the same handle to another; to
  // be given back once the context has ended, and with it all that.
  Bytes TakeAll(CUcontext context) EXCLUDES_LOCK(mutex_);

 private:
  DaemonLink* const link_;
  Mutex mutex_;
  std::map<const void*, Piece> pieces_ GUARDED_BY(mutex_);
};

}  // namespace tandem::shim
