// Entry points: page-locked host memory.
#include "softgpu/driver/driver.h"
#include "src/cuda/driver_api.h"

namespace tandem::soft {
namespace {

constexpr unsigned int kAllocFlags =
    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
constexpr unsigned int kRegisterFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                        CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;

CUresult Allocate(void** pointer, size_t bytes, unsigned int flags) {
  std::shared_ptr<Context> context;
  CU_TRY(HealthyContext(&context));
  if (pointer == nullptr || bytes == 0 || (flags & ~kAllocFlags) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CU_TRY(RefuseUnsafe());
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  if (context->destroyed.load()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return memory.host().Allocate(context->id, bytes, flags, pointer);
}

// The block that holds a pointer, if it is page-locked.
std::optional<HostMemory::Block> Find(const void* pointer) {
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  return memory.host().Find(AddressOf(pointer));
}

// Before memory goes away: whatever still uses it comes first.
CUresult WaitForOwner(const void* pointer) {
  CU_TRY(RefuseUnsafe());
  const auto block = Find(pointer);
  return block ? TheDriver().SynchroniseOwner(block->owner) : CUDA_SUCCESS;
}

}  // namespace
}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuMemAllocHost_v2(void** pointer, size_t bytes) noexcept {
  return Allocate(pointer, bytes, 0);
}

CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned int flags) noexcept {
  return Allocate(pointer, bytes, flags);
}

CUresult cuMemFreeHost(void* pointer) noexcept {
  CU_TRY(HealthyOrNoContext());
  if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CU_TRY(WaitForOwner(pointer));
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  return memory.host().Free(pointer);
}

CUresult cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned int flags) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(HealthyContext(&context));
  if (pointer == nullptr || bytes == 0 || (flags & ~kRegisterFlags) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if ((flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (TheDriver().faults->Due(kFailRegister)) return CUDA_ERROR_OUT_OF_MEMORY;
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  return memory.host().Register(context->id, pointer, bytes, flags);
}

CUresult cuMemHostUnregister(void* pointer) noexcept {
  CU_TRY(HealthyOrNoContext());
  if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CU_TRY(WaitForOwner(pointer));
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  return memory.host().Unregister(pointer);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* device_pointer, void* pointer,
                                      unsigned int flags) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(HealthyContext(&context));
  if (device_pointer == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto block = Find(pointer);
  if (!block) return CUDA_ERROR_INVALID_VALUE;
  *device_pointer = AddressOf(pointer);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int* flags, void* pointer) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(CurrentContext(&context));
  const auto block = Find(pointer);
  if (flags == nullptr || !block) return CUDA_ERROR_INVALID_VALUE;
  *flags = (block->flags & kAllocFlags) | CU_MEMHOSTALLOC_DEVICEMAP;
  return CUDA_SUCCESS;
}
