// What the agent does for a program that oversubscribes while it runs: what its launches name comes
// onto the card, in the place of what they do not.
#include <algorithm>

#include "src/shim/program/agent.h"

namespace tandem::shim {
namespace {

// Of the program's work; while it submits nothing no time passes for that.
constexpr Duration kStep = Milliseconds(20);
constexpr Duration kExchangePatience = Milliseconds(200);  // for the work under way
constexpr int kLongestPause = 9;                           // doublings of a step
constexpr int kRefusedPause = 6;  // doublings, at least, where the card or the host had no room
constexpr int kRest = 4;          // times as long as the last exchange took it is left in peace

}  // namespace

// The gate is closed for it, and work drained. Where that takes too long it is tried more and more
// seldom.
void Agent::Exchange() {
  if (!parts_.link->most_resident().has_value() || !parts_.gate->open()) return;
  const Instant now = MonotonicNow();
  const uint64_t submits = Gate::Submits();
  if (now < exchange_at_ || submits == exchange_submits_) return;
  exchange_at_ = now + kStep;
  exchange_submits_ = submits;
  parts_.memory->Age();
  Bytes credit;
  bool revoked = false;
  const auto look = [&](client::Lease& lease) {
    credit = lease.credit();
    revoked = lease.revoked();
  };
  parts_.link->With(look);
  if (revoked) return;  // another session waits
  {
    MutexLock lock(parts_.swapper->mutex());
    if (!parts_.swapper->CanExchange(credit)) return;
  }
  CUresult result = CUDA_SUCCESS;
  const auto exchange = [&]() NO_THREAD_SAFETY_ANALYSIS {
    parts_.link->With(look);  // anew, since the work under way took its time
    if (!revoked) result = parts_.swapper->Exchange(credit);  // with the lock, as TryAlone has it
  };
  const bool done = TryAlone(exchange, kExchangePatience) == AloneJob::Answer::kDone;
  exchange_failures_ = done && result == CUDA_SUCCESS ? 0 : exchange_failures_ + 1;
  if (done && result == CUDA_ERROR_OUT_OF_MEMORY) {
    exchange_failures_ = std::max(exchange_failures_, kRefusedPause);
  }
  const Instant end = MonotonicNow();
  const Duration pause = kStep * (1 << std::min(exchange_failures_, kLongestPause));
  exchange_at_ = end + std::max(pause, (end - now) * kRest);
}

}  // namespace tandem::shim
