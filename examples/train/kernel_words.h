// The few words of CUDA's C++ that kernels.cu uses, so that clang compiles it without a CUDA
// toolkit.
#pragma once

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))

__device__ inline unsigned Lane() {
  return __nvvm_read_ptx_sreg_tid_x();
}
__device__ inline unsigned Thread() {
  return __nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + Lane();
}
__device__ inline unsigned Threads() {
  return __nvvm_read_ptx_sreg_nctaid_x() * __nvvm_read_ptx_sreg_ntid_x();
}
