// A library that is linked to the driver, for look_up to open with RTLD_DEEPBIND.
#include "src/cuda/driver_api.h"

extern "C" TANDEM_CUDA_EXPORT void* deep_bound_init() {
  return reinterpret_cast<void*>(&cuInit);
}
