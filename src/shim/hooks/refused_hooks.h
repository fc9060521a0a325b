// The hooks of driver_api.def's CU_REFUSE rows. Each is a C function that takes nothing, whatever
// it is called with: it is the caller who removes what it has passed.
#pragma once

#include <atomic>

#include "src/cuda/driver_api.h"

namespace tandem::shim {

// CUDA_ERROR_NOT_SUPPORTED, told once on stderr: "`symbol` is not supported: it `why`".
CUresult RefuseCall(const char* symbol, const char* why, std::atomic<bool>* told);

}  // namespace tandem::shim

extern "C" {
#define CU_REFUSE(symbol, base, since, why) TANDEM_CUDA_EXPORT CUresult symbol() noexcept;
#include "src/cuda/driver_api.def"
#undef CU_REFUSE
}
