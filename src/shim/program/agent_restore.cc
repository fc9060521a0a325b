// How the agent brings memory back onto the card, and what it tells of that.
#include "src/shim/program/agent.h"

namespace tandem::shim {
namespace {

constexpr Duration kArrivalPause = Microseconds(50);

}  // namespace

// Where no more credit will come: memory without credit, and memory that the card has no room for.
// How it stands then; `restored` is how it stood.
CUresult Agent::ChillTheRest(CUresult restored, Bytes credit) {
  const client::View view = GetView();
  if (!view.chills || view.need > credit) return restored;
  if (restored == CUDA_ERROR_OUT_OF_MEMORY) {
    if (parts_.swapper->ChillFirst() != CUDA_SUCCESS) return restored;
    refused_ = true;
    return CUDA_SUCCESS;
  }
  if (restored != CUDA_SUCCESS && restored != CUDA_ERROR_NOT_READY) return restored;
  // No session leaves the card for memory that the host has no room for.
  const CUresult chilled = parts_.swapper->ChillSome(credit);
  return chilled == CUDA_ERROR_NOT_READY ? restored : chilled;
}

// The daemon hears of each step: it learns from that what a switch takes, and leaves the lease to
// whom bytes still come for.
CUresult Agent::RestoreSome(Bytes credit) {
  const Bytes before = parts_.swapper->arrived(), copied_before = copied_in_;
  const CUresult result = parts_.swapper->RestoreSome(credit, &copied_in_);
  const Bytes arrived = parts_.swapper->arrived(), copied = copied_in_ - copied_before;
  const Bytes from_file = parts_.swapper->TakeFromFile();
  if (arrived > before || copied > Bytes()) {
    parts_.link->With([&](client::Lease& lease) { lease.OnRestored(arrived, copied, from_file); });
  }
  return result;
}

bool Agent::Restore() {
  {
    MutexLock lock(parts_.swapper->mutex());
    // What comes back counts as unwritten until Open, so nothing may be let through before that:
    // not even where a thread has only just allocated under an open gate and did not come to shut
    // it.
    if (!parts_.memory->IfBacked(false, [this] { parts_.gate->Shut(); })) return true;
    Bytes credit;
    parts_.link->With([&](client::Lease& lease) {
      lease.OnShut();
      credit = lease.credit();
    });
    const CUresult restored = RestoreSome(credit);
    if (restored == CUDA_SUCCESS) shortage_.OnArrived();
    const CUresult result = ChillTheRest(restored, credit);
    const bool refused = restored == CUDA_ERROR_OUT_OF_MEMORY && result != CUDA_SUCCESS;
    if (refused) shortage_.OnRefused(MonotonicNow());
    if (result != CUDA_ERROR_NOT_READY) return Succeeded(result, "restore GPU memory");
  }
  Wait(kArrivalPause);  // more credit may come meanwhile, and the next chunk with it
  return true;
}

}  // namespace tandem::shim
