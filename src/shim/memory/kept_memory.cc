#include "src/shim/memory/kept_memory.h"

#include <algorithm>

namespace tandem::shim {
namespace {

// Sums of less do not overflow.
constexpr Bytes kAbsurd(uint64_t{1} << 60);

}  // namespace

bool KeptMemory::MakeRoom(Bytes more) {
  if (more > kAbsurd) return false;
  MutexLock lock(mutex_);
  const Bytes promised(promised_.load(std::memory_order_relaxed));
  const Bytes lacking = SaturatingSubtract(store_.used() + promised + more, counted());
  if (lacking > Bytes() && !fixed_->Reserve(lacking)) return false;
  Count(counted() + lacking);
  promised_.fetch_add(more.count, std::memory_order_relaxed);
  return true;
}

void KeptMemory::HearAnswer() {
  if (!asked_.has_value()) return;
  const client::Answer answer = fixed_->Poll(asked_->ticket);
  if (answer == client::Answer::kPending) return;
  if (answer == client::Answer::kGranted) Count(counted() + asked_->bytes);
  asked_.reset();
}

// The thread at it will recount in its turn: no thread waits for another's room.
void KeptMemory::Recount(Bytes room) {
  promised_.fetch_sub(room.count, std::memory_order_relaxed);
  if (!mutex_.TryLock()) return;
  HearAnswer();
  const Bytes promised(promised_.load(std::memory_order_relaxed));
  const Bytes due = std::max(store_.reserved(), store_.used() + promised);
  if (due < counted()) {
    fixed_->GiveBack(counted() - due);
    Count(due);
  } else if (due > counted() && !asked_.has_value()) {
    asked_ = Asked{fixed_->Ask(due - counted()), due - counted()};
  }
  asking_.store(asked_.has_value(), std::memory_order_relaxed);
  mutex_.Unlock();
}

}  // namespace tandem::shim
