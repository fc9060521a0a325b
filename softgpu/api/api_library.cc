// Entry points: libraries and their kernels.
#include <string>

#include "softgpu/driver/driver.h"
#include "softgpu/driver/launch.h"
#include "softgpu/driver/module_image.h"
#include "src/base/time.h"
#include "src/cuda/driver_api.h"

namespace tandem::soft {
namespace {

CUresult CheckLibraryOptions(unsigned int count, const CUlibraryOption* options, void** values) {
  if (count > 0 && options == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < count; ++i) {
    switch (options[i]) {
      case CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE:
        if (values == nullptr) return CUDA_ERROR_INVALID_VALUE;
        break;
      case CU_LIBRARY_BINARY_IS_PRESERVED:
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

CUresult FindLibrary(CUlibrary handle, std::shared_ptr<Library>* library) {
  CU_TRY(Ready());
  *library = TheDriver().libraries.Find(handle);
  return *library == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult FindKernel(CUkernel handle, std::shared_ptr<LibraryKernel>* kernel) {
  CU_TRY(Ready());
  *kernel = TheDriver().kernels.Find(handle);
  return *kernel == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult Load(CUlibrary* handle, const Image& code, CUjit_option* jit_options, void** jit_values,
              unsigned int jit_count, CUlibraryOption* options, void** values, unsigned int count) {
  CU_TRY(CheckJitOptions(jit_count, jit_options, jit_values));
  CU_TRY(CheckLibraryOptions(count, options, values));
  auto library = std::make_shared<Library>();
  CU_TRY(CompileWithOptions(code, jit_count, jit_options, jit_values, &library->program));
  *handle = TheDriver().libraries.Insert(std::move(library));
  return CUDA_SUCCESS;
}

CUkernel HandleOf(CUlibrary library_handle, const std::shared_ptr<Library>& library,
                  const ptx::Kernel& kernel) {
  MutexLock lock(library->mutex);
  CUkernel& known = library->kernels[kernel.name];
  if (known == nullptr) {
    auto made = std::make_shared<LibraryKernel>();
    made->library_handle = library_handle;
    made->library = library;
    made->kernel = &kernel;
    known = TheDriver().kernels.Insert(std::move(made));
  }
  return known;
}

}  // namespace
}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuLibraryLoadData(CUlibrary* handle, const void* code, CUjit_option* jit_options,
                           void** jit_values, unsigned int jit_count, CUlibraryOption* options,
                           void** values, unsigned int count) noexcept {
  CU_TRY(Ready());
  if (handle == nullptr || code == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Load(handle, {code}, jit_options, jit_values, jit_count, options, values, count);
}

CUresult cuLibraryLoadFromFile(CUlibrary* handle, const char* path, CUjit_option* jit_options,
                               void** jit_values, unsigned int jit_count, CUlibraryOption* options,
                               void** values, unsigned int count) noexcept {
  CU_TRY(Ready());
  if (handle == nullptr || path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::string image;
  CU_TRY(ReadFile(path, &image));
  return Load(handle, {image.c_str(), image.size()}, jit_options, jit_values, jit_count, options,
              values, count);
}

CUresult cuLibraryUnload(CUlibrary handle) noexcept {
  CU_TRY(Ready());
  const auto library = TheDriver().libraries.Take(handle);
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  TheDriver().kernels.EraseIf([&](const LibraryKernel& k) { return k.library == library; });
  std::map<uint64_t, CUmodule> modules;
  {
    MutexLock lock(library->mutex);
    modules.swap(library->modules);
  }
  for (const auto& [context, module] : modules) DropModule(module);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel* handle, CUlibrary library_handle, const char* name) noexcept {
  std::shared_ptr<Library> library;
  CU_TRY(FindLibrary(library_handle, &library));
  if (handle == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ptx::Kernel* kernel = library->program->FindKernel(name);
  if (kernel == nullptr) return CUDA_ERROR_NOT_FOUND;
  *handle = HandleOf(library_handle, library, *kernel);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary handle) noexcept {
  std::shared_ptr<Library> library;
  CU_TRY(FindLibrary(handle, &library));
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned int>(library->program->kernels().size());
  return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int count,
                                   CUlibrary handle) noexcept {
  std::shared_ptr<Library> library;
  CU_TRY(FindLibrary(handle, &library));
  if (kernels == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (const ptx::Kernel& kernel : library->program->kernels()) {
    if (count-- == 0) break;
    *kernels++ = HandleOf(handle, library, kernel);
  }
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule* module, CUlibrary handle) noexcept {
  std::shared_ptr<Context> context;
  std::shared_ptr<Library> library;
  CU_TRY(HealthyContext(&context));
  CU_TRY(FindLibrary(handle, &library));
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return ModuleOf(*library, context, module);
}

CUresult cuLibraryGetGlobal(CUdeviceptr* pointer, size_t* bytes, CUlibrary handle,
                            const char* name) noexcept {
  std::shared_ptr<Context> context;
  std::shared_ptr<Library> library;
  CU_TRY(HealthyContext(&context));
  CU_TRY(FindLibrary(handle, &library));
  if (name == nullptr || (pointer == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  CUmodule module = nullptr;
  CU_TRY(ModuleOf(*library, context, &module));
  return cuModuleGetGlobal_v2(pointer, bytes, module, name);
}

CUresult cuLibraryGetManaged(CUdeviceptr* pointer, size_t* bytes, CUlibrary handle,
                             const char* name) noexcept {
  std::shared_ptr<Library> library;
  CU_TRY(FindLibrary(handle, &library));
  if (name == nullptr || (pointer == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  const ptx::Variable* const variable = library->program->FindVariable(name);
  if (variable == nullptr || !variable->managed) return CUDA_ERROR_NOT_FOUND;
  return cuLibraryGetGlobal(pointer, bytes, handle, name);
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel handle) noexcept {
  std::shared_ptr<Context> context;
  std::shared_ptr<LibraryKernel> kernel;
  CU_TRY(HealthyContext(&context));
  CU_TRY(FindKernel(handle, &kernel));
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return FunctionOf(*kernel, context, function);
}

CUresult cuKernelGetName(const char** name, CUkernel handle) noexcept {
  std::shared_ptr<LibraryKernel> kernel;
  CU_TRY(FindKernel(handle, &kernel));
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = kernel->kernel->name.c_str();
  return CUDA_SUCCESS;
}

CUresult cuKernelGetLibrary(CUlibrary* library, CUkernel handle) noexcept {
  std::shared_ptr<LibraryKernel> kernel;
  CU_TRY(FindKernel(handle, &kernel));
  if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *library = kernel->library_handle;
  return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel handle, size_t index, size_t* offset,
                              size_t* size) noexcept {
  std::shared_ptr<LibraryKernel> kernel;
  CU_TRY(FindKernel(handle, &kernel));
  const auto& params = kernel->kernel->params;
  if (offset == nullptr || index >= params.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = params[index].offset;
  if (size != nullptr) *size = params[index].size;
  return CUDA_SUCCESS;
}

// Of the kernel, whatever single functions of it have been given. No context is needed.
CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel handle,
                              CUdevice ordinal) noexcept {
  std::shared_ptr<LibraryKernel> kernel;
  Device* device = nullptr;
  CU_TRY(FindKernel(handle, &kernel));
  CU_TRY(FindDevice(ordinal, &device));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(kernel->mutex);
  const auto set = kernel->max_dynamic_shared.find(ordinal);
  const uint32_t max_dynamic_shared =
      set != kernel->max_dynamic_shared.end() ? set->second : DefaultDynamicShared(*kernel->kernel);
  return AttributeOf(*kernel->kernel, max_dynamic_shared, attribute, value);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle,
                              CUdevice ordinal) noexcept {
  std::shared_ptr<LibraryKernel> kernel;
  Device* device = nullptr;
  CU_TRY(FindKernel(handle, &kernel));
  CU_TRY(FindDevice(ordinal, &device));
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      if (!MayHaveDynamicShared(*kernel->kernel, value)) return CUDA_ERROR_INVALID_VALUE;
      SetDynamicShared(*kernel, ordinal, static_cast<uint32_t>(value));
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return value >= -1 && value <= 100 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice device) noexcept {
  std::shared_ptr<LibraryKernel> kernel;
  Device* found = nullptr;
  CU_TRY(FindKernel(handle, &kernel));
  CU_TRY(FindDevice(device, &found));
  return config < 0 || config > 3 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
