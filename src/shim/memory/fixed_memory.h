// FixedMemory: the program's memory on the card that cannot be swapped, beside its contexts:
// arrays, managed and exported memory. The daemon makes room before the driver takes it, counts it
// for the run's limit, and is told when it is free again.
//
// The driver gives whole pages of the card to large pieces; small ones of a kind share pages. So
// what small ones take grows and falls by whole pages.
//
// Threading: any.
// Invariant: memory counted here has room at the daemon, and goes back once, when the object or
// its context is gone.
#pragma once

#include <map>
#include <utility>

#include "src/base/bytes.h"
#include "src/base/mutex.h"
#include "src/cuda/driver_types.h"
#include "src/shim/link/daemon_link.h"

namespace tandem::shim {

class FixedMemory {
 public:
  // Whose pages a small piece shares.
  enum class Kind : uint8_t { kNone, kArrays, kManaged };
  struct Piece {
    CUcontext context = nullptr;
    Bytes bytes;
    Kind kind = Kind::kNone;
  };

  explicit FixedMemory(DaemonLink* link) : link_(link) {}

  // Waits for room. False: the driver would say that memory is out.
  bool Reserve(Bytes bytes) { return link_->WaitForFixed(bytes); }
  // For memory that the driver has taken already: no thread waits for that. Poll with the ticket;
  // once granted, it counts.
  uint64_t Ask(Bytes bytes) { return link_->AskForFixed(bytes); }
  client::Answer Poll(uint64_t ticket) { return link_->PollFixed(ticket); }
  void GiveBack(Bytes bytes) {
    if (bytes > Bytes()) link_->FixedGone(bytes);
  }
  // The same for the pages that a piece takes.
  bool Reserve(const Piece& piece) EXCLUDES_LOCK(mutex_);
  void GiveBack(const Piece& piece) EXCLUDES_LOCK(mutex_);

  // `object`: the driver's handle for what has been made in reserved room, or its address: the
  // handles are addresses of the program's, too.
  void Put(const void* object, const Piece& piece) EXCLUDES_LOCK(mutex_);
  // The same of what several threads may have made at once. False: another one has put it.
  bool PutNew(const void* object, const Piece& piece) EXCLUDES_LOCK(mutex_);
  bool Has(const void* object) EXCLUDES_LOCK(mutex_);
  // Forgets it, before the driver may give the same handle to another; empty where it is unknown.
  Piece Take(const void* object) EXCLUDES_LOCK(mutex_);
  // Forgets what was made in the context, before the driver may give the same handle to another; to
  // be given back once the context has ended, and with it all that.
  Bytes TakeAll(CUcontext context) EXCLUDES_LOCK(mutex_);

 private:
  // The pages that small pieces of one kind share, in one context.
  struct Shared {
    Bytes wanted;    // by all of them
    Bytes reserved;  // in whole pages
  };
  using SharedKey = std::pair<CUcontext, Kind>;

  // What is reserved for nothing, and now for the caller to give back.
  Bytes TakeSurplus(const SharedKey& key) REQUIRES_LOCK(mutex_);

  DaemonLink* const link_;
  Mutex mutex_;
  std::map<const void*, Piece> pieces_ GUARDED_BY(mutex_);
  std::map<SharedKey, Shared> shared_ GUARDED_BY(mutex_);
};

}  // namespace tandem::shim
