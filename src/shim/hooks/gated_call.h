// GatedCall: a scope in which this thread may submit work to a stream. Where the gate refuses, the
// call is not made and returns kRefusal (docs/containers.md).
#pragma once

#include "src/shim/program/process.h"

namespace tandem::shim {

// What a driver returns for a device that cannot be used for now. No context is broken by it.
inline constexpr CUresult kRefusal = CUDA_ERROR_DEVICE_UNAVAILABLE;

class GatedCall {
 public:
  // All of it in line, for launches: an open gate then costs no test whether it has refused.
  [[gnu::always_inline]] explicit GatedCall(CUstream stream) {
    if (process_gate.EnterIfOpen(&slot_)) [[likely]] {
      if (WorkTracker::NoteMarked(slot_, stream)) [[likely]]
        return;
      Gate::LeaveWhole(slot_);
    }
    wanted_stream = stream;
    slot_ = EnterAtLength();
  }
  [[gnu::always_inline]] ~GatedCall() {
    if (!refused()) Gate::Leave(slot_);
  }
  bool refused() const { return slot_ == nullptr; }
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
  ~HeldCall() {
    if (!refused()) Gate::Leave(slot_);
  }
  bool refused() const { return slot_ == nullptr; }
  HeldCall(const HeldCall&) = delete;
  HeldCall& operator=(const HeldCall&) = delete;

 private:
  ThreadSlot* const slot_;
};

}  // namespace tandem::shim
