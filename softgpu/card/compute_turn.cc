#include "softgpu/card/compute_turn.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

namespace tandem::soft {
namespace {

// The owner word: slot + 1 (8 bits; 0: free), number of the turn (24), start in µs (32, wraps).
int OwnerSlot(uint64_t word) {
  return static_cast<int>(word >> 56) - 1;
}
uint32_t StartMicros(uint64_t word) {
  return static_cast<uint32_t>(word);
}
uint32_t NowMicros() {
  return static_cast<uint32_t>(MonotonicNow().ns / 1000);
}

uint64_t NextOwner(uint64_t word, int slot) {
  const uint64_t turn = ((word >> 32) + 1) & 0xff'ffff;
  return static_cast<uint64_t>(slot + 1) << 56 | turn << 32 | NowMicros();
}

// How long the turn has lasted; right as long as that is under 71 minutes, and a longer one at
// worst looks like a fresh one.
Duration Lasted(uint64_t word) {
  return Microseconds(NowMicros() - StartMicros(word));
}

void FutexWait(std::atomic<uint32_t>* word, uint32_t expected, Duration limit) {
  const timespec timeout = {limit.ns / 1000000000, limit.ns % 1000000000};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

}  // namespace

void ComputeTurn::SetWaiting(int slot, bool waiting) {
  const uint64_t bit = uint64_t{1} << (slot % 64);
  std::atomic<uint64_t>& word = engine().waiting[slot / 64];
  if (waiting) {
    word.fetch_or(bit);
  } else {
    word.fetch_and(~bit);
  }
}

bool ComputeTurn::OthersWait(int32_t* highest) const {
  bool any = false;
  for (int i = 0; i < kSlotCount / 64; ++i) {
    uint64_t bits = engine().waiting[i].load(std::memory_order_relaxed);
    if (i == slot_ / 64) bits &= ~(uint64_t{1} << (slot_ % 64));
    for (; bits != 0; bits &= bits - 1) {
      const int32_t theirs = priority(i * 64 + std::countr_zero(bits));
      *highest = any ? std::max(*highest, theirs) : theirs;
      any = true;
    }
  }
  return any;
}

// In ring order, of those with the highest priority.
int ComputeTurn::NextWaiting() const {
  int32_t highest = 0;
  if (!OthersWait(&highest)) return -1;
  for (int step = 1; step < kSlotCount; ++step) {
    const int slot = (slot_ + step) % kSlotCount;
    const bool waits = (engine().waiting[slot / 64].load() >> (slot % 64) & 1) != 0;
    if (waits && priority(slot) >= highest) return slot;
  }
  return -1;
}

void ComputeTurn::Wake(int slot) {
  std::atomic<uint32_t>& turn = page_->slots[slot].turn[engine_];
  turn.fetch_add(1);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&turn), FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

bool ComputeTurn::Owns() const {
  return mine_ != 0 && engine().owner.load(std::memory_order_relaxed) == mine_;
}

void ComputeTurn::Own(uint64_t word) {
  mine_ = word;
  spent_ = Duration();
}

void ComputeTurn::Acquire() {
  if (Owns()) return;
  const Duration grace = model() ? kModelGrace : kGrace;
  const Instant began = MonotonicNow();
  for (;;) {
    const uint32_t wakeups = page_->slots[slot_].turn[engine_].load();
    SetWaiting(slot_, true);  // every time round: a robber may have cleared it
    uint64_t owner = engine().owner.load();
    if (OwnerSlot(owner) == slot_) {
      Own(owner);  // handed to us
      break;
    }
    const Duration lasted = Lasted(owner);
    const bool overdue = lasted > kQuantum + grace && MonotonicNow() - began > grace;
    if (OwnerSlot(owner) < 0 || overdue) {
      const uint64_t next = NextOwner(owner, slot_);
      if (engine().owner.compare_exchange_strong(owner, next)) {
        Own(next);
        if (OwnerSlot(owner) >= 0) SetWaiting(OwnerSlot(owner), false);
        break;
      }
      continue;
    }
    const Duration left = kQuantum + grace - lasted;
    FutexWait(&page_->slots[slot_].turn[engine_], wakeups, std::max(left, Microseconds(500)));
  }
  SetWaiting(slot_, false);
}

bool ComputeTurn::QuantumOver() const {
  return model() ? spent_ >= kQuantum : Lasted(mine_) > kQuantum;
}

bool ComputeTurn::ShouldYield() const {
  if (!Owns()) return true;
  int32_t highest = 0;
  if (!OthersWait(&highest)) return false;
  return highest > priority(slot_) || QuantumOver();
}

void ComputeTurn::Take() {
  int32_t highest = 0;
  if (Owns() && OthersWait(&highest) && highest < priority(slot_)) {
    // A turn of its own after another, so that those who wait see that it goes on.
    uint64_t owner = mine_;
    const uint64_t renewed = NextOwner(owner, slot_);
    if (Lasted(mine_) > kQuantum && engine().owner.compare_exchange_strong(owner, renewed)) {
      Own(renewed);
    }
  } else if (ShouldYield()) {
    Release();
  }
  Acquire();
}

void ComputeTurn::Release() {
  uint64_t owner = mine_;
  mine_ = 0;
  if (owner == 0) return;
  const int heir = NextWaiting();
  if (heir >= 0) {
    if (engine().owner.compare_exchange_strong(owner, NextOwner(owner, heir))) Wake(heir);
    return;
  }
  const uint64_t free = NextOwner(owner, -1);
  if (!engine().owner.compare_exchange_strong(owner, free)) return;
  // A process may have begun to wait after we looked and before the engine was free.
  if (const int late = NextWaiting(); late >= 0) Wake(late);
}

}  // namespace tandem::soft
