// Declarations of every function in driver_api.def, and the type of each:
//
// CUresult cuMemAlloc_v2(CUdeviceptr*, size_t); the file that defines one of these exports it
// cuda::Fn_cuMemAlloc_v2 its pointer type
#pragma once

#include "src/cuda/driver_types.h"

#define TANDEM_CUDA_EXPORT __attribute__((visibility("default")))

extern "C" {
#define CU(symbol, base, since, shim, soft, parameters, arguments) \
  TANDEM_CUDA_EXPORT CUresult symbol parameters noexcept;
#include "src/cuda/driver_api.def"
#undef CU
}

namespace tandem::cuda {

#define CU(symbol, base, since, shim, soft, parameters, arguments) \
  using Fn_##symbol = CUresult(*) parameters;
#include "src/cuda/driver_api.def"
#undef CU

}  // namespace tandem::cuda
