// Entry points: initialisation, look-up, errors; and the names that are there for loaders only.
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "softgpu/driver/driver.h"
#include "src/cuda/driver_api.h"
#include "src/cuda/real_driver.h"

namespace tandem::soft {
namespace {

struct Export {
  std::string_view symbol;
  void* function;
};

#define SOFT_ROW_YES(symbol) {#symbol, reinterpret_cast<void*>(&::symbol)},
#define SOFT_ROW_LOADER(symbol) {#symbol, reinterpret_cast<void*>(&::symbol)},
#define SOFT_ROW_NO(symbol)
const Export kExports[] = {
#define CU(symbol, base, since, shim, soft, parameters, arguments) SOFT_ROW_##soft(symbol)
#include "src/cuda/driver_api.def"
#undef CU
};

void* AddressOf(std::string_view symbol) {
  for (const Export& row : kExports) {
    if (row.symbol == symbol) return row.function;
  }
  return nullptr;
}

// A name that is not found leaves a null pointer and says why.
CUresult LookUp(const char* symbol, void** function, int version, cuuint64_t flags,
                CUdriverProcAddressQueryResult* status) {
  if (symbol == nullptr || function == nullptr ||
      flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Who asks for a newer version than there is gets the newest there is.
  const cuda::ProcAddress found =
      cuda::ResolveProcAddress(symbol, std::min(version, DriverVersion(secure_getenv)),
                               flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
                               [](const char* row) { return AddressOf(row) != nullptr; });
  *function = found.symbol == nullptr ? nullptr : AddressOf(found.symbol);
  *status = *function != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
            : found.known        ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                 : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace tandem::soft

using namespace tandem;  // NOLINT: entry points live outside every namespace

CUresult cuInit(unsigned int flags) noexcept {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return soft::Initialise();
}

CUresult cuDriverGetVersion(int* version) noexcept {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = soft::DriverVersion(secure_getenv);
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** name) noexcept {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = cuda::ErrorName(error);
  return *name == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) noexcept {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = cuda::ErrorText(error);
  return *text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char* symbol, void** function, int version,
                          cuuint64_t flags) noexcept {
  CUdriverProcAddressQueryResult status = {};
  CU_TRY(soft::LookUp(symbol, function, version, flags, &status));
  return status == CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) noexcept {
  CUdriverProcAddressQueryResult unasked = {};
  return soft::LookUp(symbol, function, version, flags, status == nullptr ? &unasked : status);
}

// The tables are of NVIDIA's driver alone, which does not document them. NVRTC does without;
// NVIDIA's runtime does not.
CUresult cuGetExportTable(const void** table, const CUuuid* id) noexcept {
  if (table == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}

// Names without which loaders give up; what they stand for is not here yet.
#define SOFT_STUB_YES(symbol, parameters)
#define SOFT_STUB_NO(symbol, parameters)
#define SOFT_STUB_LOADER(symbol, parameters) \
  CUresult symbol parameters noexcept {      \
    return CUDA_ERROR_NOT_SUPPORTED;         \
  }
#define CU(symbol, base, since, shim, soft, parameters, arguments) \
  SOFT_STUB_##soft(symbol, parameters)
#include "src/cuda/driver_api.def"
#undef CU
