// Entry points: modules and functions.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "src/base/time.h"
#include "src/cuda/driver_api.h"
#include "src/softgpu/driver.h"
#include "src/softgpu/module_image.h"

namespace tandem::soft {
namespace {

// Puts the module's variables into VRAM.
CUresult PlaceImage(const std::shared_ptr<Context>& context, Module& module) {
  const uint64_t bytes = module.program->image_bytes();
  if (bytes == 0) return CUDA_SUCCESS;
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  if (context->destroyed.load()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  module.image_address = context->device->heap().Allocate(context->id, bytes);
  if (module.image_address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  std::vector<uint8_t> image(bytes);
  module.program->WriteImage(image.data(), module.image_address);
  std::memcpy(reinterpret_cast<void*>(module.image_address), image.data(), bytes);
  return CUDA_SUCCESS;
}

CUresult Load(CUmodule* handle, const void* image, unsigned int count, CUjit_option* options,
              void** values) {
  std::shared_ptr<Context> context;
  CU_TRY(HealthyContext(&context));
  if (handle == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CU_TRY(RefuseUnsafe());
  CU_TRY(CheckJitOptions(count, options, values));
  const Instant began = MonotonicNow();
  auto module = std::make_shared<Module>();
  module->context = context;
  std::string log;
  const CUresult compiled = CompileImage(image, &module->program, &log);
  const Duration took = MonotonicNow() - began;
  AnswerJitOptions(count, options, values, log, static_cast<float>(took.seconds() * 1e3));
  CU_TRY(compiled);
  CU_TRY(PlaceImage(context, *module));
  *handle = TheDriver().modules.Insert(std::move(module));
  return CUDA_SUCCESS;
}

CUresult Find(CUfunction handle, std::shared_ptr<Function>* function) {
  CU_TRY(Ready());
  *function = TheDriver().functions.Find(handle);
  return *function == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

uint32_t MaxThreads(const ptx::Kernel& kernel) {
  const uint32_t by_registers = kRegistersPerBlock / std::max<uint32_t>(kernel.registers, 1);
  return std::min({kernel.max_threads, kMaxBlockThreads, by_registers / 32 * 32});
}

}  // namespace
}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuModuleLoad(CUmodule* module, const char* path) noexcept {
  CU_TRY(Ready());
  if (module == nullptr || path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(path, std::ios::binary);
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return Load(module, text.c_str(), 0, nullptr, nullptr);
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) noexcept {
  return Load(module, image, 0, nullptr, nullptr);
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int count,
                            CUjit_option* options, void** values) noexcept {
  return Load(module, image, count, options, values);
}

CUresult cuModuleUnload(CUmodule handle) noexcept {
  std::shared_ptr<Context> current;
  CU_TRY(HealthyContext(&current));
  Driver& driver = TheDriver();
  CU_TRY(RefuseUnsafe());
  const auto module = driver.modules.Take(handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  driver.functions.EraseIf([&](const Function& f) { return f.module_handle == handle; });
  const CUresult result = driver.Synchronise(*module->context);
  MutexLock lock(driver.memory->mutex());
  if (module->image_address != 0 && !module->context->destroyed.load()) {
    module->context->device->heap().Free(module->image_address);
  }
  return result;
}

CUresult cuModuleGetFunction(CUfunction* handle, CUmodule module_handle,
                             const char* name) noexcept {
  CU_TRY(Ready());
  if (handle == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto module = TheDriver().modules.Find(module_handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  const ptx::Kernel* kernel = module->program->FindKernel(name);
  if (kernel == nullptr) return CUDA_ERROR_NOT_FOUND;
  MutexLock lock(module->mutex);
  CUfunction& known = module->functions[name];  // one handle per kernel, however often asked for
  if (known == nullptr) {
    auto function = std::make_shared<Function>();
    function->module_handle = module_handle;
    function->context = module->context;
    function->program = module->program;
    function->kernel = kernel;
    function->image_address = module->image_address;
    const uint32_t fixed = kernel->static_shared_bytes;
    function->max_dynamic_shared = fixed < kSharedBytesDefault ? kSharedBytesDefault - fixed : 0;
    known = TheDriver().functions.Insert(std::move(function));
  }
  *handle = known;
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
  CU_TRY(Find(handle, &function));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ptx::Kernel& kernel = *function->kernel;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = static_cast<int>(MaxThreads(kernel));
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
      *value = static_cast<int>(function->max_dynamic_shared.load());
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

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) noexcept {
  std::shared_ptr<Function> function;
  CU_TRY(Find(handle, &function));
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
      const uint32_t fixed = function->kernel->static_shared_bytes;
      if (value < 0 || static_cast<uint32_t>(value) + fixed > kSharedBytesOptIn) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      function->max_dynamic_shared = static_cast<uint32_t>(value);
      return CUDA_SUCCESS;
    }
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:  // a hint, and nothing to split here
      return value >= -1 && value <= 100 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config) noexcept {
  std::shared_ptr<Function> function;
  CU_TRY(Find(handle, &function));
  return config < 0 || config > 3 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuFuncGetModule(CUmodule* module, CUfunction handle) noexcept {
  std::shared_ptr<Function> function;
  CU_TRY(Find(handle, &function));
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *module = function->module_handle;
  return CUDA_SUCCESS;
}
