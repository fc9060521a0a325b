// Entry points: the linker.
#include <string>

#include "softgpu/driver/driver.h"
#include "softgpu/driver/module_image.h"
#include "src/cuda/driver_api.h"

namespace tandem::soft {
namespace {

CUresult Create(unsigned int count, CUjit_option* options, void** values, CUlinkState* state) {
  std::shared_ptr<Context> context;
  CU_TRY(HealthyContext(&context));
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CU_TRY(CheckJitOptions(count, options, values));
  *state = TheDriver().linkers.Insert(std::make_shared<Linker>(count, options, values));
  return CUDA_SUCCESS;
}

// Options of a single input are checked, and have nothing to say: none of them changes PTX.
CUresult AddData(CUlinkState state, CUjitInputType type, const void* data, size_t size,
                 const char* name, unsigned int count, CUjit_option* options, void** values) {
  CU_TRY(Ready());
  const auto linker = TheDriver().linkers.Find(state);
  if (!linker) return CUDA_ERROR_INVALID_HANDLE;
  if (data == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  CU_TRY(CheckJitOptions(count, options, values));
  return linker->Add(type, data, size, name != nullptr ? name : "input");
}

CUresult AddFile(CUlinkState state, CUjitInputType type, const char* path, unsigned int count,
                 CUjit_option* options, void** values) {
  CU_TRY(Ready());
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::string data;
  CU_TRY(ReadFile(path, &data));
  return AddData(state, type, data.data(), data.size(), path, count, options, values);
}

}  // namespace
}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuLinkCreate(unsigned int count, CUjit_option* options, void** values,
                      CUlinkState* state) noexcept {
  return Create(count, options, values, state);
}
CUresult cuLinkCreate_v2(unsigned int count, CUjit_option* options, void** values,
                         CUlinkState* state) noexcept {
  return Create(count, options, values, state);
}

CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void* data, size_t size,
                       const char* name, unsigned int count, CUjit_option* options,
                       void** values) noexcept {
  return AddData(state, type, data, size, name, count, options, values);
}
CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size,
                          const char* name, unsigned int count, CUjit_option* options,
                          void** values) noexcept {
  return AddData(state, type, data, size, name, count, options, values);
}

CUresult cuLinkAddFile(CUlinkState state, CUjitInputType type, const char* path, unsigned int count,
                       CUjit_option* options, void** values) noexcept {
  return AddFile(state, type, path, count, options, values);
}
CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path,
                          unsigned int count, CUjit_option* options, void** values) noexcept {
  return AddFile(state, type, path, count, options, values);
}

CUresult cuLinkComplete(CUlinkState state, void** image, size_t* size) noexcept {
  CU_TRY(Ready());
  const auto linker = TheDriver().linkers.Find(state);
  if (!linker) return CUDA_ERROR_INVALID_HANDLE;
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return linker->Complete(image, size);
}

CUresult cuLinkDestroy(CUlinkState state) noexcept {
  CU_TRY(Ready());
  return TheDriver().linkers.Take(state) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
