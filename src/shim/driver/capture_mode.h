// RelaxedCapture: while it lives, this thread may ask for events and memory although a stream is
// being captured. Otherwise the driver takes that for a mistake of the program's, and breaks the
// capture (cuThreadExchangeStreamCaptureMode says which calls it means).
#pragma once

#include "src/cuda/real_driver.h"

namespace tandem::shim {

class RelaxedCapture {
 public:
  explicit RelaxedCapture(const cuda::RealDriver* real)
      : exchange_(real->cuThreadExchangeStreamCaptureMode) {
    Exchange();
  }
  ~RelaxedCapture() { Exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  void Exchange() {
    if (exchange_ != nullptr) exchange_(&mode_);
  }

  const cuda::Fn_cuThreadExchangeStreamCaptureMode exchange_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace tandem::shim
