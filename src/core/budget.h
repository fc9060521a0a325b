// Budget: the bytes of one GPU that sessions may get, and the bytes that each is charged with.
//
// Threading: none. Pure.
// Invariants
// 1. Σ charges ≤ total + spare, after every call; a call that would break this aborts the process.
//    They exceed the total only while memory that is being evicted is lent from the spare, or after
//    a session died or fell silent meanwhile.
// 2. A charge covers what its session may put on the card and, while it is swapping out, what it
//    still has there.
#pragma once

#include <algorithm>

#include "src/base/bytes.h"

namespace tandem::core {

class Budget {
 public:
  explicit Budget(Bytes total, Bytes spare = {}) : total_(total), spare_(spare) {}

  Bytes total() const { return total_; }
  Bytes charged() const { return charged_; }
  Bytes free() const { return SaturatingSubtract(total_, charged_); }
  // What may be charged beyond free() of the `coming` bytes that others are giving up.
  Bytes Lendable(Bytes coming) const {
    return std::min(coming, spare_ - SaturatingSubtract(charged_, total_));
  }
  Bytes fixed() const { return fixed_; }

  // Changes one session's charge. REQUIRES: the increase, if it is one, is no more than free() and
  // what is lendable.
  void Recharge(Bytes from, Bytes to);
  // What cannot be swapped, of all sessions together: contexts above the reserve, arrays. REQUIRES:
  // as Recharge.
  void SetFixed(Bytes bytes);
  // REQUIRES: total + spare >= charged().
  void SetTotal(Bytes total);

 private:
  Bytes total_;
  Bytes spare_;  // of the card, beside the total
  Bytes charged_;
  Bytes fixed_;
};

}  // namespace tandem::core
