#include "softgpu/card/ledger.h"

#include <cstdlib>

namespace tandem::soft {
namespace {

// The sum: units (26 bits), the slot of the last change (7), that change's number (31).
// A share: units (33), number of the last change applied (31).
// An announcement: the change in units, signed (33), its number (31).
constexpr int kSequenceBits = 31;
constexpr uint64_t kSequenceMask = (uint64_t{1} << kSequenceBits) - 1;
constexpr int kSlotBits = 7;
static_assert(kSlotCount <= 1 << kSlotBits);

uint64_t SequenceOf(uint64_t word) {
  return word & kSequenceMask;
}
uint64_t Next(uint64_t sequence) {
  return (sequence + 1) & kSequenceMask;
}

int64_t UnitsOf(uint64_t word) {
  return static_cast<int64_t>(word) >> kSequenceBits;
}
uint64_t Pack(int64_t units, uint64_t sequence) {
  return static_cast<uint64_t>(units) << kSequenceBits | sequence;
}

int64_t JointUnits(uint64_t joint) {
  return static_cast<int64_t>(joint >> (kSequenceBits + kSlotBits));
}
int JointSlot(uint64_t joint) {
  return static_cast<int>(joint >> kSequenceBits & ((1 << kSlotBits) - 1));
}
uint64_t PackJoint(int64_t units, int slot, uint64_t sequence) {
  return static_cast<uint64_t>(units) << (kSequenceBits + kSlotBits) |
         static_cast<uint64_t>(slot) << kSequenceBits | sequence;
}

int64_t UnitsFor(Bytes bytes) {
  return static_cast<int64_t>(bytes.count / kLedgerUnit.count +
                              (bytes.count % kLedgerUnit.count != 0));
}
Bytes BytesOf(int64_t units) {
  return Bytes(static_cast<uint64_t>(units) * kLedgerUnit.count);
}

}  // namespace

void Ledger::Help(uint64_t joint) {
  Slot& slot = page_->slots[JointSlot(joint)];
  uint64_t share = slot.used.load();
  if (Next(SequenceOf(share)) != SequenceOf(joint)) return;  // applied already
  const uint64_t pending = slot.pending.load();
  // Another number: the owner went on, so another process has applied this change since.
  if (SequenceOf(pending) != SequenceOf(joint)) return;
  slot.used.compare_exchange_strong(share,
                                    Pack(UnitsOf(share) + UnitsOf(pending), SequenceOf(pending)));
}

bool Ledger::Change(int slot, int64_t units) {
  const int64_t total = static_cast<int64_t>(page_->vram_bytes / kLedgerUnit.count);
  Slot& mine = page_->slots[slot];
  for (;;) {
    uint64_t joint = page_->ledger.load();
    Help(joint);
    const int64_t sum = JointUnits(joint) + units;
    if (sum < 0) std::abort();
    if (units > 0 && sum > total) return false;
    const uint64_t sequence = Next(SequenceOf(mine.used.load()));
    mine.pending.store(Pack(units, sequence));
    const uint64_t changed = PackJoint(sum, slot, sequence);
    if (page_->ledger.compare_exchange_strong(joint, changed)) {
      Help(changed);
      return true;
    }
  }
}

bool Ledger::Charge(int slot, Bytes bytes) {
  if (bytes > total()) return false;
  return Change(slot, UnitsFor(bytes));
}

void Ledger::Return(int slot, Bytes bytes) {
  if (bytes > held_by(slot)) std::abort();
  Change(slot, -UnitsFor(bytes));
}

void Ledger::Claim(int slot) {
  Help(page_->ledger.load());
  // Also for an empty slot: the new number is what makes late reapers fail. A reaper may return
  // the former owner's share before we do; then nothing is left to return and we look again.
  Reap(slot, [](int) { return true; });
  Change(slot, 0);
}

void Ledger::Reap(int slot, const std::function<bool(int slot)>& is_dead) {
  Slot& theirs = page_->slots[slot];
  for (;;) {
    uint64_t joint = page_->ledger.load();
    Help(joint);
    const uint64_t share = theirs.used.load();
    uint64_t pending = theirs.pending.load();
    if (UnitsOf(share) == 0 || !is_dead(slot)) return;
    // Its last change may have come after the look at the sum; announcing over it would lose it.
    if (page_->ledger.load() != joint) continue;
    const uint64_t sequence = Next(SequenceOf(share));
    const uint64_t announced = Pack(-UnitsOf(share), sequence);
    if (pending != announced && !theirs.pending.compare_exchange_strong(pending, announced)) {
      continue;
    }
    const uint64_t changed = PackJoint(JointUnits(joint) - UnitsOf(share), slot, sequence);
    if (page_->ledger.compare_exchange_strong(joint, changed)) {
      Help(changed);
      return;
    }
  }
}

Bytes Ledger::used() const {
  return BytesOf(JointUnits(page_->ledger.load()));
}

Bytes Ledger::held_by(int slot) const {
  return BytesOf(UnitsOf(page_->slots[slot].used.load()));
}

}  // namespace tandem::soft
