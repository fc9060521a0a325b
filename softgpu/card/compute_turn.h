// ComputeTurn: one engine of a device for all its processes, in turns of two milliseconds. It is
// for the compute engine; by the model clock the two directions of the bus are used in turns as
// well.
//
// The engine's owner is one word in the shared page: slot, number of the turn, when it began.
// A waiter sets its slot's waiting bit. An owner whose quantum is over hands the engine to the next
// waiting slot in ring order and wakes it; it never simply drops the engine, so it cannot snatch it
// back. An owner or heir that is stopped or dead lets its quantum pass; then any waiter takes the
// engine and clears the other's bit. A stopped owner finds out when it goes on: ShouldYield() says
// so.
//
// A process of higher priority gets the engine as soon as it waits, and as long as it has work
// those of lower priority have none of it.
//
// By the model clock a quantum is over when the work done in it is worth one. An owner or heir
// that does not go on gets more time than a merely busy machine needs: the clock stands still
// meanwhile.
//
// Threading: one thread at a time per ComputeTurn; any number of processes.
//
// Invariants:
// 1. At most one slot owns the engine. (A process robbed of it computes until its next
//    ShouldYield(): the engine is a matter of time, not of exclusion.)
// 2. While a slot of the owner's priority waits, the engine changes hands at the latest a quantum
//    and a grace after it last did.
#pragma once

#include "softgpu/card/shared_page.h"
#include "src/base/time.h"

namespace tandem::soft {

inline constexpr Duration kQuantum = Milliseconds(2);
inline constexpr Duration kGrace = Milliseconds(4);
inline constexpr Duration kModelGrace = Milliseconds(100);

class ComputeTurn {
 public:
  ComputeTurn(SharedPage* page, int slot, SharedEngine engine = SharedEngine::kCompute)
      : page_(page), slot_(slot), engine_(static_cast<int>(engine)) {}

  // The same engine of another card. REQUIRES: this process does not own it.
  void Use(SharedPage* page, int slot) {
    page_ = page;
    slot_ = slot;
  }

  // Waits until this process owns the engine. At once if it does already.
  void Acquire();
  // Cheap. Whether the owner must stop computing: its quantum is over and another process waits, or
  // it is the owner no more.
  bool ShouldYield() const;
  // Stops being the owner where ShouldYield(), and waits to be it again.
  void Take();
  // Gives the engine to the next who waits, or leaves it free.
  void Release();
  bool Owns() const;
  // By the model clock: the owner's work took this part of its quantum.
  void Spend(Duration length) { spent_ = spent_ + length; }

 private:
  bool model() const { return page_->model_clock != 0; }
  EngineState& engine() const { return page_->engines[engine_]; }
  int32_t priority(int slot) const { return page_->slots[slot].priority.load(); }
  bool QuantumOver() const;
  // The highest priority that another slot waits with; false if none does.
  bool OthersWait(int32_t* priority) const;
  int NextWaiting() const;
  void Own(uint64_t word);
  void SetWaiting(int slot, bool waiting);
  void Wake(int slot);

  SharedPage* page_;
  int slot_;
  const int engine_;
  uint64_t mine_ = 0;  // the owner word while it was last ours
  Duration spent_;     // of the quantum
};

}  // namespace tandem::soft
