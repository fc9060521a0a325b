// Ledger: each process's share of a device's VRAM. Joint for all processes, without a lock.
//
// The difficulty: a charge changes two words, the joint sum and the process's own share, and the
// process may die or be stopped in between. So a change is first announced in the slot (`pending`),
// then made to the sum by one compare-and-swap that also names the slot and the change's number,
// and only then to the share. The next process that finds the last change not yet in the share of
// the change's slot puts it there first ("helps"). Any process returns the share of a dead one in
// the same way: reapers racing each other announce and try the very same change, and one of them
// wins.
//
// Threading: different slots may be used at the same time by any threads and processes; one slot's
// Charge and Return are serialised by its owner.
//
// Invariants:
// 1. The sum is at most the device's VRAM, at every instant.
// 2. The sum is the total of the slots' shares plus at most one change that is still to be helped.
// 3. A slot's sequence number never goes back, also when the slot changes hands; so a reaper that
//    slept through a change of hands fails its compare-and-swap.
#pragma once

#include <functional>

#include "softgpu/card/shared_page.h"
#include "src/base/bytes.h"

namespace tandem::soft {

// VRAM is counted in units of this size; amounts are rounded up to it.
inline constexpr Bytes kLedgerUnit = KiB(64);

class Ledger {
 public:
  explicit Ledger(SharedPage* page) : page_(page) {}

  // False, and nothing changed, if that is more than is left.
  bool Charge(int slot, Bytes bytes);
  // REQUIRES: the slot was charged that much.
  void Return(int slot, Bytes bytes);

  // Makes a slot that was just acquired empty. REQUIRES: its former owner is dead.
  void Claim(int slot);
  // Returns what a dead process held. `is_dead` is asked after the slot was looked at.
  void Reap(int slot, const std::function<bool(int slot)>& is_dead);

  // Brings the slots' shares up to date with the sum.
  void Complete() { Help(page_->ledger.load()); }

  Bytes total() const { return Bytes(page_->vram_bytes); }
  Bytes used() const;
  Bytes held_by(int slot) const;

 private:
  bool Change(int slot, int64_t units);
  void Help(uint64_t joint);

  SharedPage* const page_;
};

}  // namespace tandem::soft
