// InContext: makes a context the calling thread's current one for a scope.
//
// It leaves the thread alone if the context is current already. The program may have destroyed that
// one elsewhere; pushed and popped once more, NVIDIA's driver frees it under the thread that has
// it.
#pragma once

#include "src/cuda/real_driver.h"

namespace tandem::shim {

class InContext {
 public:
  InContext(const cuda::RealDriver* real, CUcontext context) : real_(real) {
    CUcontext current = nullptr;
    if (context == nullptr) {
      result_ = CUDA_ERROR_INVALID_CONTEXT;
    } else if (real_->cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != context) {
      result_ = real_->cuCtxPushCurrent_v2(context);
      pushed_ = result_ == CUDA_SUCCESS;
    }
  }
  ~InContext() {
    CUcontext popped = nullptr;
    if (pushed_) real_->cuCtxPopCurrent_v2(&popped);
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;
  CUresult result() const { return result_; }

 private:
  const cuda::RealDriver* const real_;
  CUresult result_ = CUDA_SUCCESS;
  bool pushed_ = false;
};

}  // namespace tandem::shim
