// GatedCall: a scope in which this thread may submit work to a stream.
#pragma once

#include "src/shim/process.h"

namespace tandem::shim {

class GatedCall {
 public:
  explicit GatedCall(CUstream stream) : slot_(process_gate.Enter(stream)) {
    WorkTracker* const tracker = process_tracker.load(std::memory_order_acquire);
    if (tracker != nullptr) [[likely]]
      tracker->Note(slot_, stream);
  }
  ~GatedCall() { Gate::Leave(slot_); }
  GatedCall(const GatedCall&) = delete;
  GatedCall& operator=(const GatedCall&) = delete;

 private:
  ThreadSlot* const slot_;
};

// The same for a call that is done when it returns.
class HeldCall {
 public:
  HeldCall() : slot_(process_gate.Enter(kNoStream)) {}
  ~HeldCall() { Gate::Leave(slot_); }
  HeldCall(const HeldCall&) = delete;
  HeldCall& operator=(const HeldCall&) = delete;

 private:
  ThreadSlot* const slot_;
};

}  // namespace tandem::shim
