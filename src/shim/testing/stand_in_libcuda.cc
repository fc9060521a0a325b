// A libcuda.so.1 to be looked up: every function that a driver of CUDA 13.0 has, but no device and
// no work. With STAND_IN_COPIES in its environment cuGetProcAddress hands out other pointers than
// dlsym.
#include <cstdlib>
#include <cstring>

#include "src/cuda/driver_api.h"
#include "src/shim/testing/stand_in_functions.h"

extern "C" {

CUresult cuInit(unsigned int) noexcept {
  return CUDA_ERROR_NO_DEVICE;
}

CUresult cuDriverGetVersion(int* version) noexcept {
  *version = 12345;
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr*, size_t) noexcept {
  return CUDA_ERROR_NOT_INITIALIZED;
}

CUresult cuMemsetD8_v2(CUdeviceptr, unsigned char, size_t) noexcept {
  return CUDA_ERROR_NOT_INITIALIZED;
}

// What later drivers may have.
TANDEM_CUDA_EXPORT CUresult cuMemAlloc_v3(CUdeviceptr*, size_t, int) {
  return CUDA_SUCCESS;
}

TANDEM_CUDA_EXPORT CUresult cuLaunchAnew(void*) {
  return CUDA_SUCCESS;
}

TANDEM_CUDA_EXPORT CUresult cuAskAnew(int* answer) {
  *answer = 42;
  return CUDA_SUCCESS;
}

struct Later {
  const char* symbol;
  const char* base;
  void* function;
};
constexpr int kLaterVersion = 99000;
const Later kLater[] = {
    {"cuMemAlloc_v3", "cuMemAlloc", reinterpret_cast<void*>(&cuMemAlloc_v3)},
    {"cuLaunchAnew", "cuLaunchAnew", reinterpret_cast<void*>(&cuLaunchAnew)},
    {"cuAskAnew", "cuAskAnew", reinterpret_cast<void*>(&cuAskAnew)},
};

// Without the shim in between. Gives the symbol that was found, or null.
TANDEM_CUDA_EXPORT const char* stand_in_look_up(const char* base, void** function, int version,
                                                cuuint64_t flags,
                                                CUdriverProcAddressQueryResult* status) {
  bool known = false;
  *status = CU_GET_PROC_ADDRESS_SUCCESS;
  for (const Later& later : kLater) {
    if (std::strcmp(base, later.base) != 0 || version < kLaterVersion) continue;
    *function = later.function;
    return later.symbol;
  }
  const tandem::shim::StandInFunction* const found = tandem::shim::FindStandInFunction(
      base, version, flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &known);
  static const bool copies = std::getenv("STAND_IN_COPIES") != nullptr;
  *function = found == nullptr ? nullptr : copies ? found->copy : found->exported;
  *status = found != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
            : known          ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                             : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return found == nullptr ? nullptr : found->symbol;
}

CUresult cuGetProcAddress(const char* symbol, void** function, int version,
                          cuuint64_t flags) noexcept {
  CUdriverProcAddressQueryResult status;
  stand_in_look_up(symbol, function, version, flags, &status);
  return *function == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) noexcept {
  stand_in_look_up(symbol, function, version, flags, status);
  return CUDA_SUCCESS;
}

// Not the driver's business, though its name begins like it.
TANDEM_CUDA_EXPORT int cudnnCreate() {
  return 7;
}

}  // extern "C"
