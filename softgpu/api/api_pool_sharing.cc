// Entry points: pools that other processes use.
#include "softgpu/driver/driver.h"
#include "src/cuda/driver_api.h"

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuMemPoolExportToShareableHandle(void* shareable, CUmemoryPool handle,
                                          CUmemAllocationHandleType type,
                                          unsigned long long flags) noexcept {
  CU_TRY(Ready());
  if (shareable == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  const Pool* pool = memory.pools().Find(handle);
  return pool == nullptr ? CUDA_ERROR_INVALID_VALUE : pool->Export(static_cast<int*>(shareable));
}

// The descriptor is handed in as if it were an address.
CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool* handle, void* shareable,
                                            CUmemAllocationHandleType type,
                                            unsigned long long flags) noexcept {
  CU_TRY(Ready());
  if (handle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  auto shared = ShareableMemory::Import(ShareableMemory::Use::kPool,
                                        static_cast<int>(reinterpret_cast<intptr_t>(shareable)));
  if (shared == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* device = TheDriver().FindDevice(TheDriver().OrdinalOf(shared->device()));
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  Pool* pool = memory.pools().Create(device, 0);
  pool->Adopt(std::move(shared));
  *handle = reinterpret_cast<CUmemoryPool>(pool->id);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData* data, CUdeviceptr pointer) noexcept {
  CU_TRY(Ready());
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  const auto found = memory.Find(pointer);
  const Pool* pool = found ? memory.pools().OfOwner(found->pool) : nullptr;
  return pool == nullptr ? CUDA_ERROR_INVALID_VALUE : pool->ExportPointer(pointer, data);
}

CUresult cuMemPoolImportPointer(CUdeviceptr* pointer, CUmemoryPool handle,
                                CUmemPoolPtrExportData* data) noexcept {
  CU_TRY(Ready());
  if (pointer == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  Pool* pool = memory.pools().Find(handle);
  if (pool == nullptr || !pool->imported()) return CUDA_ERROR_INVALID_VALUE;
  uint64_t address = 0;
  CU_TRY(pool->ImportPointer(*data, &address));
  *pointer = address;
  return CUDA_SUCCESS;
}
