#include "src/shim/hooks/refused_hooks.h"

#include "src/shim/os/log.h"

namespace tandem::shim {

CUresult RefuseCall(const char* symbol, const char* why, std::atomic<bool>* told) {
  if (!told->exchange(true, std::memory_order_relaxed)) {
    Log(LogLevel::kWarn, "%s is not supported under Tandem: it %s", symbol, why);
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace tandem::shim

extern "C" {
#define CU_REFUSE(symbol, base, since, why)               \
  CUresult symbol() noexcept {                            \
    static constinit std::atomic<bool> told{false};       \
    return tandem::shim::RefuseCall(#symbol, why, &told); \
  }
#include "src/cuda/driver_api.def"
#undef CU_REFUSE
}
