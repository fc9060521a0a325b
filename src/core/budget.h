// Budget: the bytes of one GPU that may be handed out, and who has been charged with how many.
//
// Threading: none. Pure.
// Invariants
// 1. Σ charges ≤ total, after every call; a call that would break this aborts the process.
// 2. A charge covers what its session may put on the card and, while it is swapping out, what it
//    still has there.
#pragma once

#include <map>

#include "src/core/types.h"

namespace tandem::core {

class Budget {
 public:
  explicit Budget(Bytes total) : total_(total) {}

  Bytes total() const { return total_; }
  Bytes charged() const { return charged_; }
  Bytes free() const { return total_ - charged_; }
  Bytes fixed() const { return fixed_; }
  Bytes charge(SessionId id) const;

  // REQUIRES: the increase, if it is one, is no more than free().
  void SetCharge(SessionId id, Bytes bytes);
  // What cannot be swapped, of all sessions together: contexts above the reserve, arrays. REQUIRES:
  // as SetCharge.
  void SetFixed(Bytes bytes);
  // REQUIRES: total >= charged().
  void SetTotal(Bytes total);

 private:
  void Change(Bytes from, Bytes to);

  Bytes total_;
  Bytes charged_;
  Bytes fixed_;
  std::map<SessionId, Bytes> charges_;  // only those above zero
};

}  // namespace tandem::core
