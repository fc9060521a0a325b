// A libcuda.so.1 with just enough in it to be looked up: no device, no work. Its functions return
// values of their own, so that a caller sees who answered.
#include "src/cuda/driver_api.h"

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

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int, cuuint64_t,
                             CUdriverProcAddressQueryResult* status) noexcept {
  const bool alloc = __builtin_strcmp(symbol, "cuMemAlloc") == 0;
  *function = alloc ? reinterpret_cast<void*>(&cuMemAlloc_v2) : nullptr;
  *status = alloc ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return alloc ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

// Not the driver's business, though its name begins like it.
TANDEM_CUDA_EXPORT int cudnnCreate() {
  return 7;
}

}  // extern "C"
