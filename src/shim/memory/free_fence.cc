#include "src/shim/memory/free_fence.h"

#include "src/shim/driver/capture_mode.h"

namespace tandem::shim {

CUresult FreeFence::Put() {
  // In this order: a submission that is counted is seen on its way in, or the events are behind it.
  const uint64_t submits = Gate::Submits();
  behind_ = Gate::AnyInside() ? kUnknown : submits;
  const CUresult result = tracker_->Begin(device_, WorkTracker::Watch::kFree);
  put_ = result == CUDA_SUCCESS;
  return result;
}

CUresult FreeFence::Advance(bool look) {
  if (!mutex_.TryLock()) return CUDA_ERROR_NOT_READY;
  const RelaxedCapture relaxed(real_);
  CUresult result = CUDA_SUCCESS;
  // A fence that was put earlier, then one for what has been retired since.
  const auto more = [&] { return memory_->retired() != Bytes() || (look && !AllDone()); };
  for (int round = 0; round < 2 && result == CUDA_SUCCESS && more(); ++round) {
    if (!put_) {
      memory_->Fence();
      if (AllDone()) {
        on_released_(memory_->ReleaseFenced());
        break;
      }
      result = Put();
    }
    if (result == CUDA_SUCCESS) result = tracker_->Poll(device_, WorkTracker::Watch::kFree);
    if (result == CUDA_ERROR_NOT_READY) break;
    put_ = false;
    if (result != CUDA_SUCCESS) break;
    done_.store(behind_, std::memory_order_release);
    on_released_(memory_->ReleaseFenced());
  }
  mutex_.Unlock();
  // A capture hides what runs: its end is waited for like that of work.
  const bool hidden = result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ||
                      result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  return hidden ? CUDA_ERROR_NOT_READY : result;
}

void FreeFence::OnDrained() {
  MutexLock lock(mutex_);
  put_ = false;
  done_.store(Gate::Submits(), std::memory_order_release);
  memory_->Fence();
  on_released_(memory_->ReleaseFenced());
}

}  // namespace tandem::shim
