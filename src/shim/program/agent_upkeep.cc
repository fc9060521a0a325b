// What the agent does from time to time without a request: it returns freed memory and keeps the
// host memory ready.
#include <algorithm>
#include <utility>

#include "src/shim/os/log.h"
#include "src/shim/program/agent.h"

namespace tandem::shim {
namespace {

constexpr Duration kWatchPeriod = Microseconds(200);   // while pauses are waited for
constexpr Duration kFreeingPeriod = Milliseconds(2);   // while freed memory waits for work
constexpr Duration kExchangePeriod = Milliseconds(5);  // of a program that oversubscribes
constexpr Duration kHolderPeriod = Milliseconds(100);
constexpr Duration kRestPeriod = Milliseconds(500);
constexpr Duration kRetryPeriod = Milliseconds(5);
constexpr Duration kReturnPeriod = Milliseconds(10);
constexpr Duration kTrimPeriod = Seconds(5);
constexpr Duration kReapPeriod = Milliseconds(2);  // at first, where something would not go

}  // namespace

Duration Agent::Patience() const {
  if (undrained_) return kRetryPeriod;
  if (retry_) return Backoff(kRetryPeriod, failures_);
  if (host_memory_due_) return Duration();
  Duration patience = OrdinaryPatience();
  const Instant now = MonotonicNow();
  if (unreturned_.load(std::memory_order_relaxed)) {
    patience = std::min(patience, std::max(return_at_ - now, Duration()));
  }
  if (parts_.memory->HasDead()) {
    patience = std::min(patience, std::max(reap_at_ - now, Duration()));
  }
  return patience;
}

Duration Agent::OrdinaryPatience() const {
  if (lost_) return std::max(reconnect_at_ - MonotonicNow(), Duration());
  const bool open = parts_.gate->open();
  const bool watched = parts_.link->contended() || parts_.link->watched() || parts_.leases->over();
  if ((open || has_run_) && watched) return kWatchPeriod;
  if (open && parts_.link->most_resident().has_value()) return kExchangePeriod;
  if (freeing_) return kFreeingPeriod;
  return open ? kHolderPeriod : kRestPeriod;
}

// Calls that would wait while the GPU is taken away fail, or wait again.
void Agent::Refuse() {
  const bool refuses = parts_.link->refuses();
  if (std::exchange(refuses_, refuses) != refuses) {  // said before the program may end of it
    Log(LogLevel::kWarn, refuses ? "the GPU has been taken away: calls that need it fail until it "
                                   "is given back (`tandem attach`)"
                                 : "the GPU has been given back");
  }
  parts_.gate->Refuse(refuses);
}

void Agent::ReleaseFreedMemory() {
  const CUresult released = parts_.fence->Step();
  freeing_ = parts_.memory->retired() != Bytes();
  if (IsSticky(released)) {
    MutexLock lock(parts_.swapper->mutex());
    DropBroken();
  }
  const Instant now = MonotonicNow();
  shortage_.Step(now);
  const bool trim = now - trimmed_at_ >= kTrimPeriod;
  const bool reap = parts_.memory->HasDead() && now >= reap_at_;
  if (!trim && !reap) return;
  MutexLock lock(parts_.swapper->mutex());
  parts_.swapper->Reap();
  // The rest was mostly arriving; but the driver may also refuse to take it off the card.
  const bool failed = parts_.memory->HasDead();
  reap_at_ = failed ? now + Backoff(kReapPeriod, reaps_failed_) : now;
  reaps_failed_ = failed ? reaps_failed_ + 1 : 0;
  if (!trim) return;
  parts_.swapper->Trim(ArenaShare());
  trimmed_at_ = now;
  host_memory_due_ = true;
}

void Agent::ReturnUnusedReservationSoon() {
  if (!unreturned_.load(std::memory_order_relaxed) && !unreturned_.exchange(true)) Wake();
}

// Memory freed a moment ago and not taken again goes back: kept pages, and the reservation with the
// daemon.
void Agent::ReturnUnusedReservation() {
  const Instant now = MonotonicNow();
  if (!unreturned_.load(std::memory_order_relaxed) || now < return_at_) return;
  return_at_ = now + kReturnPeriod;
  unreturned_.store(false);  // frees from here on are reported anew
  bool more = false;
  parts_.link->Unreserve(parts_.memory->FreeUntakenPages(&more));
  more = parts_.link->ReturnUnusedReservation() || more;
  if (more) unreturned_.store(true);
}

// Of the host memory that the session may need, what is not that of cold chunks.
HostShare Agent::ArenaShare() const {
  const MemoryView memory = parts_.memory->GetView();
  const Bytes most = parts_.link->most_resident().value_or(memory.need);
  const Bytes cold = std::max(memory.cold, SaturatingSubtract(memory.need, most));
  const HostShare share = parts_.link->host_share();
  return {SaturatingSubtract(share.memory, cold), share.file};
}

// Only a little at a time, and the lock is let go in between.
void Agent::KeepHostMemoryReady() {
  const HostShare share = ArenaShare();
  if (!host_memory_due_ && share == host_share_) return;
  MutexLock lock(parts_.swapper->mutex());
  if (OwnFd file = parts_.link->TakeSpillFile(); file.intact()) {
    const DaemonLink* const link = parts_.link;
    parts_.swapper->spill_file().Offer(std::move(file), [link] { return link->host_share().file; });
  }
  if (share != std::exchange(host_share_, share)) parts_.swapper->Keep(share.total());
  host_memory_due_ = parts_.swapper->PrepareHostMemory(share);
}

}  // namespace tandem::shim
