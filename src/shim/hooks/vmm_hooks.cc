// Hooks of driver_api.def's OWN rows for memory that the program makes and maps by itself. What
// VmmMemory has no answer to goes to the driver.
#include <algorithm>
#include <atomic>
#include <map>
#include <vector>

#include "src/base/around.h"
#include "src/base/mutex.h"
#include "src/shim/hooks/gated_call.h"
#include "src/shim/os/log.h"

namespace tandem::shim {
namespace {

// Addresses that the program has reserved. Kept from the first on, for a guest that comes later.
class Reservations {
 public:
  void Add(CUdeviceptr address, uint64_t bytes) {
    MutexLock lock(mutex_);
    reserved_[address] = bytes;
  }
  // Returns how much it was; 0 if none begins there.
  uint64_t Remove(CUdeviceptr address) {
    MutexLock lock(mutex_);
    const auto found = reserved_.find(address);
    if (found == reserved_.end()) return 0;
    const uint64_t bytes = found->second;
    reserved_.erase(found);
    return bytes;
  }
  // Whether all of it lies in one.
  bool Contain(CUdeviceptr address, uint64_t bytes) {
    MutexLock lock(mutex_);
    const auto found = FindAround(reserved_, address);
    return found != reserved_.end() && bytes <= found->second - (address - found->first);
  }

 private:
  Mutex mutex_;
  std::map<CUdeviceptr, uint64_t> reserved_ GUARDED_BY(mutex_);
};

Reservations& TheReservations() {
  static Reservations* const reservations = new Reservations;
  return *reservations;
}

// Whether it lies where blocks do, also those of other processes that are open here, which programs
// cannot map, for all that the driver knows better.
bool IsBlocks(CUdeviceptr pointer) {
  const auto is_in = [=](Guest* guest) {
    return guest->Owns(pointer) || guest->opened().Find(pointer).has_value();
  };
  return FindGuest(is_in) != nullptr;
}

// What `ask` gets from the memory of one of the guests, or what the driver says where none of them
// has an answer.
template <typename Ask, typename CallDriver>
CUresult AskFirst(Ask ask, CallDriver call_driver) {
  const std::optional<CUresult> result =
      AskGuests([&](Guest* guest) { return ask(&guest->vmm()); });
  return result.has_value() ? *result : call_driver();
}

// Who is to be asked about a range: the one that has something mapped there, or any.
VmmMemory* VmmOf(CUdeviceptr address, uint64_t bytes) {
  Guest* guest = FindGuest([=](Guest* each) { return each->vmm().Touches(address, bytes); });
  if (guest == nullptr) guest = FindGuest([](Guest*) { return true; });
  return guest == nullptr ? nullptr : &guest->vmm();
}

// Neighbouring mappings that one guest knows.
struct Part {
  VmmMemory* vmm = nullptr;
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
};

// The parts of a range that whole mappings of several devices cover; else none.
std::vector<Part> PartsOf(CUdeviceptr address, uint64_t bytes) {
  std::vector<Part> parts;
  for (uint64_t done = 0; done < bytes;) {
    const CUdeviceptr at = address + done;
    Guest* const guest = FindGuest([=](Guest* each) { return each->vmm().Find(at).has_value(); });
    const auto mapping = guest == nullptr ? std::nullopt : guest->vmm().Find(at);
    if (!mapping || mapping->address != at || mapping->bytes > bytes - done) return {};
    if (parts.empty() || parts.back().vmm != &guest->vmm()) parts.push_back({&guest->vmm(), at, 0});
    parts.back().bytes += mapping->bytes;
    done += mapping->bytes;
  }
  return parts.size() > 1 ? parts : std::vector<Part>();
}

// `call` for each part, up to the first error.
template <typename Each>
CUresult CallForEach(const std::vector<Part>& parts, Each call) {
  for (const Part& part : parts) {
    if (const CUresult result = call(part); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

// A driver does not know our handles, and may still follow one. Memory for sparse arrays is made
// for them and so the driver's own; it would refuse any other.
bool MapsSwapped(const CUarrayMapInfo& map) {
  const auto is_swapped = [&](Guest* guest) {
    CUmemAllocationProp properties = {};
    return guest->vmm().GetProperties(map.memHandle.memHandle, &properties).has_value();
  };
  return map.memOperationType == CU_MEM_OPERATION_TYPE_MAP && FindGuest(is_swapped) != nullptr;
}

bool IsRefused(const CUarrayMapInfo* maps, unsigned int count) {
  static constinit std::atomic<bool> told{false};
  if (maps == nullptr || !std::any_of(maps, maps + count, &MapsSwapped)) return false;
  if (!told.exchange(true, std::memory_order_relaxed)) {
    Log(LogLevel::kWarn,
        "cuMemMapArrayAsync has refused memory that was not made for sparse arrays, with "
        "CU_MEM_CREATE_USAGE_TILE_POOL");
  }
  return true;
}

}  // namespace
}  // namespace tandem::shim

using namespace tandem;
using namespace tandem::shim;

extern "C" {

CUresult cuMemAddressReserve(CUdeviceptr* pointer, size_t size, size_t alignment,
                             CUdeviceptr address, unsigned long long flags) noexcept {
  const CUresult result =
      Call(Real().cuMemAddressReserve, pointer, size, alignment, address, flags);
  if (result == CUDA_SUCCESS) TheReservations().Add(*pointer, size);
  return result;
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t size) noexcept {
  const bool used =
      FindGuest([=](Guest* guest) { return guest->vmm().AnyIn(pointer, size); }) != nullptr;
  if (used || IsBlocks(pointer)) return CUDA_ERROR_INVALID_VALUE;
  // Before the driver may give the addresses to another thread.
  const uint64_t reserved = TheReservations().Remove(pointer);
  const CUresult result = Call(Real().cuMemAddressFree, pointer, size);
  if (result != CUDA_SUCCESS && reserved != 0) TheReservations().Add(pointer, reserved);
  return result;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* properties, unsigned long long flags) noexcept {
  const auto create = [=] { return Call(Real().cuMemCreate, handle, size, properties, flags); };
  if (handle == nullptr || properties == nullptr || flags != 0 ||
      properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return create();
  }
  const auto [guest, refusal] = GuestOn(properties->location.id);
  if (guest == nullptr) return refusal != CUDA_SUCCESS ? refusal : create();
  const std::optional<CUresult> result = guest->vmm().Create(size, *properties, handle);
  return result.has_value() ? *result : create();
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) noexcept {
  return AskFirst([=](VmmMemory* vmm) { return vmm->Release(handle); },
                  [=] {
                    if (VmmMemory::IsOwn(handle)) return CUDA_ERROR_INVALID_VALUE;
                    return Call(Real().cuMemRelease, handle);
                  });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) noexcept {
  const auto retain = [=] { return Call(Real().cuMemRetainAllocationHandle, handle, address); };
  if (handle == nullptr) return retain();
  const auto pointer = reinterpret_cast<CUdeviceptr>(address);
  if (IsBlocks(pointer)) return CUDA_ERROR_INVALID_VALUE;
  return AskFirst([=](VmmMemory* vmm) { return vmm->Retain(pointer, handle); }, retain);
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                CUmemGenericAllocationHandle handle) noexcept {
  const auto get = [=] {
    if (VmmMemory::IsOwn(handle)) return CUDA_ERROR_INVALID_VALUE;
    return Call(Real().cuMemGetAllocationPropertiesFromHandle, properties, handle);
  };
  if (properties == nullptr) return get();
  return AskFirst([=](VmmMemory* vmm) { return vmm->GetProperties(handle, properties); }, get);
}

CUresult cuMemMap(CUdeviceptr pointer, size_t size, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) noexcept {
  Guest* guest = FindGuest([=](Guest* each) { return each->vmm().Knows(handle); });
  if (guest == nullptr) guest = FindGuest([](Guest*) { return true; });
  if (guest == nullptr) return Call(Real().cuMemMap, pointer, size, offset, handle, flags);
  const auto in_use = [=](Guest* each) {
    return each != guest && each->vmm().Touches(pointer, size);
  };
  if (offset != 0 || flags != 0 || size == 0) {  // wrong for any handle
    if (VmmMemory::IsOwn(handle)) return CUDA_ERROR_INVALID_VALUE;
    return Call(Real().cuMemMap, pointer, size, offset, handle, flags);
  }
  if (IsBlocks(pointer) || FindGuest(in_use) != nullptr) return CUDA_ERROR_INVALID_VALUE;
  return guest->vmm().Map(pointer, size, handle, TheReservations().Contain(pointer, size));
}

CUresult cuMemUnmap(CUdeviceptr pointer, size_t size) noexcept {
  if (IsBlocks(pointer)) return CUDA_ERROR_INVALID_VALUE;
  if (const std::vector<Part> parts = PartsOf(pointer, size); !parts.empty()) {
    return CallForEach(parts,
                       [](const Part& part) { return part.vmm->Unmap(part.address, part.bytes); });
  }
  VmmMemory* const vmm = VmmOf(pointer, size);
  return vmm == nullptr ? Call(Real().cuMemUnmap, pointer, size) : vmm->Unmap(pointer, size);
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t size, const CUmemAccessDesc* access,
                        size_t count) noexcept {
  const auto set = [=] { return Call(Real().cuMemSetAccess, pointer, size, access, count); };
  if (access == nullptr || count == 0) return set();
  if (IsBlocks(pointer)) return CUDA_ERROR_INVALID_VALUE;
  if (const std::vector<Part> parts = PartsOf(pointer, size); !parts.empty()) {
    return CallForEach(parts, [=](const Part& part) {
      const auto result = part.vmm->SetAccess(part.address, part.bytes, access, count);
      if (result.has_value()) return *result;
      return Call(Real().cuMemSetAccess, part.address, part.bytes, access, count);
    });
  }
  return AskFirst([=](VmmMemory* vmm) { return vmm->SetAccess(pointer, size, access, count); },
                  set);
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                        CUdeviceptr pointer) noexcept {
  const auto get = [=] { return Call(Real().cuMemGetAccess, flags, location, pointer); };
  if (flags == nullptr || location == nullptr) return get();
  if (IsBlocks(pointer)) return CUDA_ERROR_INVALID_VALUE;
  return AskFirst([=](VmmMemory* vmm) { return vmm->GetAccess(pointer, *location, flags); }, get);
}

CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type,
                                      unsigned long long flags) noexcept {
  const auto give = [=](CUmemGenericAllocationHandle real) {
    const bool known = type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (VmmMemory::IsOwn(real)) return known ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
    return Call(Real().cuMemExportToShareableHandle, shareable, real, type, flags);
  };
  if (shareable == nullptr || flags != 0) {
    return VmmMemory::IsOwn(handle) ? CUDA_ERROR_INVALID_VALUE : give(handle);
  }
  Guest* const guest = FindGuest([=](Guest* each) { return each->vmm().Knows(handle); });
  const std::optional<CUresult> prepared =
      guest == nullptr ? std::nullopt : guest->vmm().PrepareExport(handle, type);
  if (!prepared.has_value()) return give(handle);
  if (*prepared == CUDA_ERROR_INVALID_VALUE) return give(handle);
  if (*prepared != CUDA_SUCCESS) return *prepared;
  const HeldCall call;  // exported memory is on the card
  if (call.refused()) return kRefusal;
  return guest->vmm().Export(handle, give);
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                        CUmemAllocationHandleType type) noexcept {
  const CUresult result = Call(Real().cuMemImportFromShareableHandle, handle, shareable, type);
  CUmemAllocationProp properties = {};
  if (result != CUDA_SUCCESS ||
      Call(Real().cuMemGetAllocationPropertiesFromHandle, &properties, *handle) != CUDA_SUCCESS ||
      properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return result;
  }
  const auto [guest, refusal] = GuestOn(properties.location.id);
  if (guest != nullptr) guest->vmm().Imported(*handle, properties);
  if (refusal != CUDA_SUCCESS) Call(Real().cuMemRelease, *handle);
  return refusal;
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo* maps, unsigned int count, CUstream stream) noexcept {
  if (IsRefused(maps, count)) return CUDA_ERROR_INVALID_VALUE;
  const GatedCall call(stream);
  if (call.refused()) return kRefusal;
  return Call(Real().cuMemMapArrayAsync, maps, count, stream);
}

CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo* maps, unsigned int count,
                                 CUstream stream) noexcept {
  if (IsRefused(maps, count)) return CUDA_ERROR_INVALID_VALUE;
  const GatedCall call(stream == nullptr ? kPerThreadStream : stream);
  if (call.refused()) return kRefusal;
  return Call(Real().cuMemMapArrayAsync_ptsz, maps, count, stream);
}

}  // extern "C"
