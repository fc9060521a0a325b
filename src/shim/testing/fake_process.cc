#include "src/shim/testing/fake_process.h"

#include "src/shim/hooks/gated_call.h"

namespace tandem::shim {
namespace {

constinit std::atomic<const cuda::RealDriver*> fake_driver{nullptr};
constinit std::atomic<Guest*> fake_guest{nullptr};

}  // namespace

constinit Gate process_gate;
constinit std::atomic<int> guests_end{1};

void SetFakeProcess(const cuda::RealDriver* real, Guest* guest) {
  fake_driver = real;
  fake_guest = guest;
  process_gate.Open();  // what holds calls back is not what these tests are about
}

const cuda::RealDriver& Real() {
  static constexpr cuda::RealDriver kNone;
  const cuda::RealDriver* const real = fake_driver;
  return real == nullptr ? kNone : *real;
}

constinit thread_local CUstream GatedCall::wanted_stream
    __attribute__((tls_model("initial-exec"))) = nullptr;

ThreadSlot* GatedCall::EnterAtLength() {
  return process_gate.Enter(wanted_stream);
}

bool MayBeCaptured(CUstream stream) {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  return Call(Real().cuStreamIsCapturing, stream, &capture) != CUDA_SUCCESS ||
         capture != CU_STREAM_CAPTURE_STATUS_NONE;
}

Guest* OpenGuest(CUdevice device) {
  return device == 0 ? fake_guest.load() : nullptr;
}

GuestResult GuestOn(CUdevice device) {
  return {OpenGuest(device)};
}

Guest* GuestOfCurrentContext(CUcontext* context) {
  const bool current = Call(Real().cuCtxGetCurrent, context) == CUDA_SUCCESS && *context != nullptr;
  return current ? fake_guest.load() : nullptr;
}

}  // namespace tandem::shim
