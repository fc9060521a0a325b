// InContext: makes a context the calling thread's current one for a scope.
#pragma once

#include "src/cuda/real_driver.h"

namespace tandem::shim {

class InContext {
 public:
  InContext(const cuda::RealDriver* real, CUcontext context) : real_(real) {
    result_ = context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : real_->cuCtxPushCurrent_v2(context);
  }
  ~InContext() {
    CUcontext popped = nullptr;
    if (result_ == CUDA_SUCCESS) real_->cuCtxPopCurrent_v2(&popped);
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;
  CUresult result() const { return result_; }

 private:
  const cuda::RealDriver* const real_;
  CUresult result_;
};

}  // namespace tandem::shim
