// Entry points: virtual memory management.
#include <span>
#include <vector>

#include "softgpu/driver/driver.h"
#include "src/cuda/driver_api.h"

namespace tandem::soft {
namespace {

// The host's memory has one node.
bool IsHost(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA && location.id == 0;
}

// What can be created here: pinned memory of a device, which may be exported as a descriptor, or of
// the host, for which *device is null.
CUresult CheckProperties(const CUmemAllocationProp* properties, Device** device) {
  *device = nullptr;
  if (properties == nullptr || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (IsHost(properties->location)) {
    return properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE ? CUDA_SUCCESS
                                                                       : CUDA_ERROR_NOT_SUPPORTED;
  }
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  *device = TheDriver().FindDevice(properties->location.id);
  if (*device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE ||
                 properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
             ? CUDA_SUCCESS
             : CUDA_ERROR_NOT_SUPPORTED;
}

// Who is meant by a place in which memory may be used.
CUresult UserOf(const CUmemLocation& location, int* user) {
  *user = IsHost(location) ? Vmm::kHost : location.id;
  if (IsHost(location)) return CUDA_SUCCESS;
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  return TheDriver().FindDevice(location.id) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace
}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuMemAddressReserve(CUdeviceptr* pointer, size_t size, size_t alignment,
                             CUdeviceptr address, unsigned long long flags) noexcept {
  CU_TRY(Ready());
  if (pointer == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  uint64_t reserved = 0;
  CU_TRY(memory.vmm().Reserve(size, alignment, address, &reserved));
  *pointer = reserved;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t size) noexcept {
  CU_TRY(Ready());
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  return memory.vmm().FreeReservation(pointer, size);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* properties, unsigned long long flags) noexcept {
  CU_TRY(Ready());
  Device* device = nullptr;
  if (handle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  CU_TRY(CheckProperties(properties, &device));
  Faults& faults = *TheDriver().faults;
  const bool no_allocation = faults.Due(kFailAlloc), no_creation = faults.Due(kFailCreate);
  if (no_allocation || no_creation) return CUDA_ERROR_OUT_OF_MEMORY;
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  Vmm& vmm = memory.vmm();
  if (device == nullptr) return vmm.CreateOnHost(size, *properties, handle);
  CUresult result = CUDA_SUCCESS;
  memory.Manage(device, [&] {
    result = vmm.Create(&device->store(), device->uuid(), size, *properties, handle);
    return result != CUDA_ERROR_OUT_OF_MEMORY;
  });
  return result;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) noexcept {
  CU_TRY(Ready());
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  return memory.vmm().Release(handle);
}

CUresult cuMemMap(CUdeviceptr pointer, size_t size, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) noexcept {
  CU_TRY(Ready());
  if (offset != 0 || flags != 0 || size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (TheDriver().faults->Due(kFailMap)) return CUDA_ERROR_OUT_OF_MEMORY;
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  return memory.vmm().Map(pointer, size, handle);
}

CUresult cuMemUnmap(CUdeviceptr pointer, size_t size) noexcept {
  CU_TRY(Ready());
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  return memory.vmm().Unmap(pointer, size);
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t size, const CUmemAccessDesc* descriptions,
                        size_t count) noexcept {
  CU_TRY(Ready());
  if (descriptions == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Vmm::Grant> grants;
  for (const CUmemAccessDesc& description : std::span(descriptions, count)) {
    Vmm::Grant grant;
    CU_TRY(UserOf(description.location, &grant.device));
    CU_TRY(AccessOf(description.flags, &grant.access));
    grants.push_back(grant);
  }
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  return memory.vmm().SetAccess(pointer, size, grants);
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                        CUdeviceptr pointer) noexcept {
  CU_TRY(Ready());
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  int user = 0;
  CU_TRY(UserOf(*location, &user));
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  const auto found = memory.vmm().Find(pointer);
  if (!found) return CUDA_ERROR_INVALID_VALUE;
  const auto known = found->users.find(user);
  *flags = FlagsOf(known == found->users.end() ? Access::kNone : known->second);
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags option) noexcept {
  CU_TRY(Ready());
  Device* device = nullptr;
  if (granularity == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
      option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CU_TRY(CheckProperties(properties, &device));
  *granularity = kPageBytes;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                CUmemGenericAllocationHandle handle) noexcept {
  CU_TRY(Ready());
  if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  const CUmemAllocationProp* found = memory.vmm().PropertiesOf(handle);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *properties = *found;
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) noexcept {
  CU_TRY(Ready());
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  return memory.vmm().Retain(AddressOf(address), handle);
}

CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type,
                                      unsigned long long flags) noexcept {
  CU_TRY(Ready());
  if (shareable == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  return memory.vmm().Export(handle, static_cast<int*>(shareable));
}

// The descriptor is handed in as if it were an address.
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                        CUmemAllocationHandleType type) noexcept {
  CU_TRY(Ready());
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  auto shared = ShareableMemory::Import(ShareableMemory::Use::kMemory,
                                        static_cast<int>(reinterpret_cast<intptr_t>(shareable)));
  if (shared == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = type;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = TheDriver().OrdinalOf(shared->device());
  if (properties.location.id < 0) return CUDA_ERROR_INVALID_DEVICE;
  Memory& memory = *TheDriver().memory;
  MutexLock lock(memory.mutex());
  *handle = memory.vmm().Adopt(std::move(shared), properties);
  return CUDA_SUCCESS;
}
