// What a hook does around a call that submits work, for tests.
//
// Threading: any thread, as a hook.
#pragma once

#include "src/shim/gate/gate.h"
#include "src/shim/gate/work_tracker.h"

namespace tandem::shim {

// Waits at the gate; `inside` is what the work does, on the default stream.
template <typename Function>
void SubmitThrough(Gate& gate, WorkTracker& tracker, Function inside) {
  ThreadSlot* const slot = gate.Enter();
  tracker.Note(slot, nullptr);
  inside();
  Gate::Leave(slot);
}

}  // namespace tandem::shim
