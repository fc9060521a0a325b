// GatedCall: a scope in which this thread may submit work to a stream.
#pragma once

#include "src/shim/program/process.h"

namespace tandem::shim {

class GatedCall {
 public:
  explicit GatedCall(CUstream stream) {
    if (process_gate.EnterIfOpen(&slot_)) [[likely]] {
      if (WorkTracker::NoteMarked(slot_, stream)) [[likely]]
        return;
      Gate::LeaveWhole(slot_);
    }
    wanted_stream = stream;
    slot_ = EnterAtLength();
  }
  ~GatedCall() { Gate::Leave(slot_); }
  GatedCall(const GatedCall&) = delete;
  GatedCall& operator=(const GatedCall&) = delete;

 private:
  // Where the gate is not simply open, or the stream not the one that this thread marked last. The
  // stream is in `wanted_stream`: an argument would take a register from those of the call.
  [[gnu::noinline, gnu::cold]] static ThreadSlot* EnterAtLength();
  static constinit thread_local CUstream wanted_stream __attribute__((tls_model("initial-exec")));

  ThreadSlot* slot_;
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
