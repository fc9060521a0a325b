#include "softgpu/driver/library.h"

#include <algorithm>
#include <cstring>

#include "softgpu/driver/driver.h"
#include "src/cuda/driver_api.h"

namespace tandem::soft {
namespace {

// Puts the module's variables into VRAM.
CUresult PlaceImage(const std::shared_ptr<Context>& context, Module& module) {
  const uint64_t bytes = module.program->image_bytes();
  if (bytes == 0) return CUDA_SUCCESS;
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  if (context->destroyed.load()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  // One managed variable makes a managed block of all of them: the host may look at it.
  const bool managed = std::ranges::any_of(module.program->variables(), &ptx::Variable::managed);
  module.image_address =
      memory.AllocateOn(context->device, context->id, bytes, Heap::Use::kDriver,
                        managed ? Heap::Users::kEveryDevice : Heap::Users::kItsDevice);
  if (module.image_address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  std::vector<uint8_t> image(bytes);
  module.program->WriteImage(image.data(), module.image_address);
  std::memcpy(reinterpret_cast<void*>(module.image_address), image.data(), bytes);
  return CUDA_SUCCESS;
}

// REQUIRES: no work uses the module any more.
void FreeImage(const Module& module) {
  MutexLock lock(TheDriver().memory->mutex());
  if (module.image_address != 0 && !module.context->destroyed.load()) {
    module.context->device->heap().Free(module.image_address);
  }
}

void Inherit(CUfunction handle, uint32_t max_dynamic_shared) {
  const auto function = TheDriver().functions.Find(handle);
  if (function && !function->has_own_attributes) function->max_dynamic_shared = max_dynamic_shared;
}

// A context's module, if it has one. One of an earlier primary context went with that.
bool FindModule(const Library& library, const Context& context, CUmodule* handle)
    REQUIRES_LOCK(library.mutex) {
  const auto known = library.modules.find(context.id);
  if (known == library.modules.end() || !TheDriver().modules.Find(known->second)) return false;
  *handle = known->second;
  return true;
}

}  // namespace

CUresult PlaceModule(const std::shared_ptr<Context>& context,
                     std::shared_ptr<const ptx::Program> program, bool of_library,
                     CUmodule* handle) {
  auto module = std::make_shared<Module>();
  module->context = context;
  module->program = std::move(program);
  module->of_library = of_library;
  CU_TRY(PlaceImage(context, *module));
  *handle = TheDriver().modules.Insert(std::move(module));
  return CUDA_SUCCESS;
}

CUresult FunctionOf(CUmodule module_handle, const char* name, CUfunction* handle) {
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
    function->max_dynamic_shared = DefaultDynamicShared(*kernel);
    known = TheDriver().functions.Insert(std::move(function));
  }
  *handle = known;
  return CUDA_SUCCESS;
}

CUresult DropModule(CUmodule handle) {
  Driver& driver = TheDriver();
  const auto module = driver.modules.Take(handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  driver.functions.EraseIf([&](const Function& f) { return f.module_handle == handle; });
  const CUresult result = driver.Synchronise(*module->context);
  FreeImage(*module);
  return result;
}

CUresult ModuleOf(Library& library, const std::shared_ptr<Context>& context, CUmodule* handle) {
  {
    MutexLock lock(library.mutex);
    if (FindModule(library, *context, handle)) return CUDA_SUCCESS;
  }
  CUmodule made = nullptr;
  CU_TRY(PlaceModule(context, library.program, true, &made));
  {
    MutexLock lock(library.mutex);
    if (!FindModule(library, *context, handle)) {
      library.modules[context->id] = *handle = made;
      return CUDA_SUCCESS;
    }
  }
  // Another thread was faster, and this one is unused.
  if (const auto unused = TheDriver().modules.Take(made)) FreeImage(*unused);
  return CUDA_SUCCESS;
}

CUresult FunctionOf(LibraryKernel& kernel, const std::shared_ptr<Context>& context,
                    CUfunction* handle) {
  CUmodule module = nullptr;
  CU_TRY(ModuleOf(*kernel.library, context, &module));
  CU_TRY(FunctionOf(module, kernel.kernel->name.c_str(), handle));
  MutexLock lock(kernel.mutex);
  const auto set = kernel.max_dynamic_shared.find(context->device->ordinal());
  if (set != kernel.max_dynamic_shared.end()) Inherit(*handle, set->second);
  return CUDA_SUCCESS;
}

uint32_t DefaultDynamicShared(const ptx::Kernel& kernel) {
  const uint32_t fixed = kernel.static_shared_bytes;
  return fixed < kSharedBytesDefault ? kSharedBytesDefault - fixed : 0;
}

bool MayHaveDynamicShared(const ptx::Kernel& kernel, int bytes) {
  return bytes >= 0 &&
         static_cast<uint32_t>(bytes) + kernel.static_shared_bytes <= kSharedBytesOptIn;
}

// Functions that there are have it at once, those made later from the start.
void SetDynamicShared(LibraryKernel& kernel, CUdevice device, uint32_t bytes) {
  {
    MutexLock lock(kernel.mutex);
    kernel.max_dynamic_shared[device] = bytes;
  }
  std::vector<CUmodule> modules;
  {
    MutexLock lock(kernel.library->mutex);
    for (const auto& [context, module] : kernel.library->modules) modules.push_back(module);
  }
  for (const CUmodule handle : modules) {
    const auto module = TheDriver().modules.Find(handle);
    if (!module || module->context->device->ordinal() != device) continue;
    MutexLock lock(module->mutex);
    const auto function = module->functions.find(kernel.kernel->name);
    if (function != module->functions.end()) Inherit(function->second, bytes);
  }
}

}  // namespace tandem::soft
