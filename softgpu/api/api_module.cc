// Entry points: modules and functions.
#include <string>

#include "softgpu/driver/driver.h"
#include "softgpu/driver/launch.h"
#include "softgpu/driver/module_image.h"
#include "softgpu/driver/occupancy.h"
#include "src/cuda/driver_api.h"

namespace tandem::soft {
namespace {

CUresult Load(CUmodule* handle, const Image& image, unsigned int count, CUjit_option* options,
              void** values) {
  std::shared_ptr<Context> context;
  CU_TRY(HealthyContext(&context));
  if (handle == nullptr || image.begin == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CU_TRY(RefuseUnsafe());
  CU_TRY(CheckJitOptions(count, options, values));
  std::shared_ptr<const ptx::Program> program;
  CU_TRY(CompileWithOptions(image, count, options, values, &program));
  return PlaceModule(context, std::move(program), false, handle);
}

}  // namespace

CUresult AttributeOf(const ptx::Kernel& kernel, uint32_t max_dynamic_shared,
                     CUfunction_attribute attribute, int* value) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = static_cast<int>(MaxBlockThreads(kernel));
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = static_cast<int>(kernel.static_shared_bytes);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *value = static_cast<int>(kernel.local_bytes);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = static_cast<int>(kernel.registers);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = kComputeMajor * 10 + kComputeMinor;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = static_cast<int>(max_dynamic_shared);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *value = -1;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      *value = 0;
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuModuleLoad(CUmodule* module, const char* path) noexcept {
  CU_TRY(Ready());
  if (module == nullptr || path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::string text;
  CU_TRY(ReadFile(path, &text));
  return Load(module, {text.c_str(), text.size()}, 0, nullptr, nullptr);
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) noexcept {
  return Load(module, {image}, 0, nullptr, nullptr);
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int count,
                            CUjit_option* options, void** values) noexcept {
  return Load(module, {image}, count, options, values);
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image) noexcept {
  return Load(module, {image}, 0, nullptr, nullptr);
}

CUresult cuModuleUnload(CUmodule handle) noexcept {
  CU_TRY(HealthyOrNoContext());
  CU_TRY(RefuseUnsafe());
  const auto module = TheDriver().modules.Find(handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  return module->of_library ? CUDA_ERROR_NOT_PERMITTED : DropModule(handle);
}

CUresult cuModuleGetFunction(CUfunction* handle, CUmodule module, const char* name) noexcept {
  CU_TRY(Ready());
  if (handle == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return FunctionOf(module, name, handle);
}

CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule handle) noexcept {
  CU_TRY(Ready());
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto module = TheDriver().modules.Find(handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned int>(module->program->kernels().size());
  return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int count,
                                    CUmodule handle) noexcept {
  CU_TRY(Ready());
  if (functions == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto module = TheDriver().modules.Find(handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  for (const ptx::Kernel& kernel : module->program->kernels()) {
    if (count-- == 0) break;
    CU_TRY(FunctionOf(handle, kernel.name.c_str(), functions++));
  }
  return CUDA_SUCCESS;
}

// A module's code is ready as soon as it is loaded.
CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) noexcept {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CU_TRY(Ready());
  *mode = CU_MODULE_EAGER_LOADING;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* pointer, size_t* bytes, CUmodule handle,
                              const char* name) noexcept {
  CU_TRY(Ready());
  if (name == nullptr || (pointer == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  const auto module = TheDriver().modules.Find(handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  const ptx::Variable* variable = module->program->FindVariable(name);
  if (variable == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (pointer != nullptr) *pointer = module->image_address + variable->offset;
  if (bytes != nullptr) *bytes = variable->size;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute,
                            CUfunction handle) noexcept {
  std::shared_ptr<Function> function;
  CU_TRY(FindFunction(handle, &function));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return AttributeOf(*function->kernel, function->max_dynamic_shared.load(), attribute, value);
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) noexcept {
  std::shared_ptr<Function> function;
  CU_TRY(FindFunction(handle, &function));
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      if (!MayHaveDynamicShared(*function->kernel, value)) return CUDA_ERROR_INVALID_VALUE;
      function->has_own_attributes = true;
      function->max_dynamic_shared = static_cast<uint32_t>(value);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:  // a hint, and nothing to split here
      return value >= -1 && value <= 100 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config) noexcept {
  std::shared_ptr<Function> function;
  CU_TRY(FindFunction(handle, &function));
  return config < 0 || config > 3 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuFuncGetModule(CUmodule* module, CUfunction handle) noexcept {
  std::shared_ptr<Function> function;
  CU_TRY(FindFunction(handle, &function));
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *module = function->module_handle;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char** name, CUfunction handle) noexcept {
  std::shared_ptr<Function> function;
  CU_TRY(FindFunction(handle, &function));
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = function->kernel->name.c_str();
  return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset,
                            size_t* size) noexcept {
  std::shared_ptr<Function> function;
  CU_TRY(FindFunction(handle, &function));
  const auto& params = function->kernel->params;
  if (offset == nullptr || index >= params.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = params[index].offset;
  if (size != nullptr) *size = params[index].size;
  return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction handle) noexcept {
  std::shared_ptr<Function> function;
  return FindFunction(handle, &function);
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction handle) noexcept {
  std::shared_ptr<Function> function;
  CU_TRY(FindFunction(handle, &function));
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig config) noexcept {
  std::shared_ptr<Function> function;
  CU_TRY(FindFunction(handle, &function));
  return config < 0 || config > 2 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
