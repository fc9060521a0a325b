// ComputeTurn: one compute engine for all processes of a device, in turns of two milliseconds.
//
// The engine's owner is one word in the shared page: slot, number of the turn, when it began.
// Whoever wants the engine sets its slot's waiting bit. An owner whose quantum is over hands the
// engine to the next waiting slot in ring order and wakes it; it is never simply dropped, so nobody
// can snatch it back. An owner or heir that is stopped or dead lets its quantum pass; then any
// waiter takes the engine and clears the other's bit. A stopped owner finds out when it goes on:
// ShouldYield() says so.
//
// Threading: one thread at a time per ComputeTurn; any number of processes.
//
// Invariants:
// 1. At most one slot owns the engine. (A process robbed of it computes until its next
//    ShouldYield(): the engine is a matter of time, not of exclusion.)
// 2. While a slot waits, the engine changes hands at the latest a quantum and a grace after it
//    last did.
#pragma once

#include "src/base/time.h"
#include "src/softgpu/shared_page.h"

namespace tandem::soft {

inline constexpr Duration kQuantum = Milliseconds(2);
inline constexpr Duration kGrace = Milliseconds(4);

class ComputeTurn {
 public:
  ComputeTurn(SharedPage* page, int slot) : page_(page), slot_(slot) {}

  // Waits until this process owns the engine. At once if it does already.
  void Acquire();
  // Cheap. Whether the owner must stop computing: its quantum is over and somebody waits, or it is
  // the owner no more.
  bool ShouldYield() const;
  // Gives the engine to the next who waits, or leaves it free.
  void Release();
  bool Owns() const;

 private:
  bool OthersWait() const;
  int NextWaiting() const;
  void SetWaiting(int slot, bool waiting);
  void Wake(int slot);

  SharedPage* const page_;
  const int slot_;
  uint64_t mine_ = 0;  // the owner word while it was last ours
};

}  // namespace tandem::soft
