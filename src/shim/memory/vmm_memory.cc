#include "src/shim/memory/vmm_memory.h"

#include <algorithm>
#include <limits>
#include <span>

#include "src/base/around.h"
#include "src/shim/swap/extent_aliases.h"
#include "src/shim/swap/host_arena.h"

namespace tandem::shim {
namespace {

// Memory in one piece leaves the card in one piece; more than this stays.
constexpr uint64_t kLargestPiece = HostArena::kSmallestMapping;

bool MaySwap(uint64_t bytes, const CUmemAllocationProp& properties) {
  return properties.allocFlags.usage == 0 && properties.win32HandleMetaData == nullptr &&
         (properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE || bytes <= kLargestPiece);
}

}  // namespace

std::optional<CUresult> VmmMemory::Create(uint64_t bytes, const CUmemAllocationProp& properties,
                                          Handle* handle) {
  const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
  if (properties.type != CU_MEM_ALLOCATION_TYPE_PINNED || bytes == 0 ||
      !SamePlace(properties.location, here)) {
    return std::nullopt;
  }
  // Whether the driver would make it at all, and in which units.
  size_t unit = 0;
  const CUresult known =
      real_->cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (known != CUDA_SUCCESS || unit == 0 || bytes % unit != 0) return std::nullopt;
  if (bytes % kGranule != 0 || kGranule % unit != 0 || !MaySwap(bytes, properties)) {
    return CreateFixed(bytes, properties, handle);
  }
  if (bytes > std::numeric_limits<uint64_t>::max() / 2) return CUDA_ERROR_OUT_OF_MEMORY;
  Extent* extent = nullptr;
  const auto add = [&](Extent** added) {
    const CUresult result = memory_->AllocateExtentFor(properties, bytes, added);
    extent = *added;
    return result;
  };
  const CUresult result = source_.reclaim->Retry([&] { return source_.grow(bytes, add); });
  if (result != CUDA_SUCCESS) return result;
  MutexLock lock(mutex_);
  *handle = next_handle_++;
  physical_[*handle] = {.extent = extent, .bytes = bytes, .properties = properties};
  return CUDA_SUCCESS;
}

std::optional<CUresult> VmmMemory::CreateFixed(uint64_t bytes,
                                               const CUmemAllocationProp& properties,
                                               Handle* handle) {
  if (!source_.reclaim->MakeRoom(Bytes(bytes))) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = real_->cuMemCreate(handle, bytes, &properties, 0);
  if (result != CUDA_SUCCESS) {
    fixed_->GiveBack(Bytes(bytes));
    return result;
  }
  MutexLock lock(mutex_);
  physical_[*handle] = {.bytes = bytes, .properties = properties, .fixed = Bytes(bytes)};
  return CUDA_SUCCESS;
}

std::optional<CUresult> VmmMemory::Release(Handle handle) {
  MutexLock swap_lock(swapper_->mutex());
  Physical known;
  {
    MutexLock lock(mutex_);
    const auto found = physical_.find(handle);
    if (found == physical_.end()) return std::nullopt;
    if (found->second.references == 0) return CUDA_ERROR_INVALID_VALUE;
    --found->second.references;
    known = found->second;
    // Before the driver may give the number to another.
    const bool last = known.extent == nullptr && known.references == 0 && known.mappings == 0;
    if (last) physical_.erase(found);
  }
  if (known.extent != nullptr) {
    DropIfUnused(handle);
    return CUDA_SUCCESS;
  }
  const CUresult result = real_->cuMemRelease(handle);
  const bool gone = known.references == 0 && known.mappings == 0;
  if (result == CUDA_SUCCESS) {
    if (gone) fixed_->GiveBack(known.fixed);
    return result;
  }
  MutexLock lock(mutex_);
  Physical& kept = physical_.try_emplace(handle, known).first->second;
  kept.references = known.references + 1;
  return result;
}

void VmmMemory::DropIfUnused(Handle handle) {
  Physical gone;
  {
    MutexLock lock(mutex_);
    const auto found = physical_.find(handle);
    if (found->second.references != 0 || found->second.mappings != 0) return;
    gone = found->second;
    physical_.erase(found);
  }
  if (gone.extent != nullptr) {
    const Bytes shrunk = memory_->FreeExtent(gone.extent);
    swapper_->Reap();
    source_.shrink(shrunk);
  }
  fixed_->GiveBack(gone.fixed);
}

std::optional<CUresult> VmmMemory::Retain(CUdeviceptr address, Handle* handle) {
  MutexLock lock(mutex_);
  const auto mapping = Around(address);
  if (mapping == mappings_.end() || mapping->second.handle == 0) return std::nullopt;
  Physical& physical = physical_.at(mapping->second.handle);
  Handle given = mapping->second.handle;
  if (physical.extent == nullptr) {
    const CUresult result =
        real_->cuMemRetainAllocationHandle(&given, reinterpret_cast<void*>(address));
    if (result != CUDA_SUCCESS) return result;
  }
  ++physical.references;
  *handle = given;
  return CUDA_SUCCESS;
}

std::optional<CUresult> VmmMemory::GetProperties(Handle handle,
                                                 CUmemAllocationProp* properties) const {
  MutexLock lock(mutex_);
  const auto found = physical_.find(handle);
  if (found == physical_.end() || found->second.extent == nullptr) return std::nullopt;
  if (found->second.references == 0) return CUDA_ERROR_INVALID_VALUE;
  *properties = found->second.properties;
  return CUDA_SUCCESS;
}

VmmMemory::Mappings::const_iterator VmmMemory::Around(CUdeviceptr address) const {
  return FindAround(mappings_, address, &Mapped::bytes);
}

bool VmmMemory::Overlaps(CUdeviceptr address, uint64_t bytes) const {
  if (Around(address) != mappings_.end()) return true;
  const auto next = mappings_.lower_bound(address);
  return next != mappings_.end() && next->first - address < bytes;
}

void VmmMemory::Imported(Handle handle, const CUmemAllocationProp& properties) {
  MutexLock lock(mutex_);
  const auto [known, added] =
      physical_.try_emplace(handle, Physical{.properties = properties, .imported = true});
  if (!added) ++known->second.references;
}

VmmMemory::Physical* VmmMemory::FindImported(Handle handle) {
  const auto found = physical_.find(handle);
  return found != physical_.end() && found->second.imported ? &found->second : nullptr;
}

// Imported memory counts from here on. False: there is no room for it.
bool VmmMemory::BeginMapping(Handle handle, uint64_t bytes) {
  const auto begin = [&](Bytes reserved) {
    MutexLock lock(mutex_);
    Physical* const physical = FindImported(handle);
    const bool counts = physical == nullptr || physical->fixed != Bytes();
    if (!counts && reserved == Bytes()) return false;
    if (!counts) {
      physical->bytes = bytes;
      physical->fixed = reserved;
    } else if (reserved != Bytes()) {
      fixed_->GiveBack(reserved);  // another thread was faster
    }
    if (physical != nullptr) ++physical->being_mapped;
    return true;
  };
  return begin(Bytes()) || (source_.reclaim->MakeRoom(Bytes(bytes)) && begin(Bytes(bytes)));
}

// Where the driver would not map it after all it does not count.
void VmmMemory::EndMapping(Handle handle) {
  MutexLock lock(mutex_);
  Physical* const physical = FindImported(handle);
  if (physical == nullptr || --physical->being_mapped != 0 || physical->mappings != 0) return;
  fixed_->GiveBack(std::exchange(physical->fixed, Bytes()));
}

CUresult VmmMemory::Map(CUdeviceptr address, uint64_t bytes, Handle handle, bool reserved) {
  if (!BeginMapping(handle, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = MapCounted(address, bytes, handle, reserved);
  EndMapping(handle);
  return result;
}

CUresult VmmMemory::MapCounted(CUdeviceptr address, uint64_t bytes, Handle handle, bool reserved) {
  MutexLock swap_lock(swapper_->mutex());
  Extent* extent = nullptr;
  bool known = false;
  {
    MutexLock lock(mutex_);
    if (const auto found = physical_.find(handle); found != physical_.end()) {
      known = true;
      extent = found->second.extent;
      const bool valid = found->second.references != 0 && reserved && address % kGranule == 0 &&
                         bytes == found->second.bytes;
      if (extent != nullptr && !valid) return CUDA_ERROR_INVALID_VALUE;
    }
    // Where ours is swapped out the driver knows of no mapping.
    if (Overlaps(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult result = extent != nullptr ? AddAlias(*real_, extent, address)
                                            : real_->cuMemMap(address, bytes, 0, handle, 0);
  if (result != CUDA_SUCCESS) return result;
  MutexLock lock(mutex_);
  if (known) ++physical_.at(handle).mappings;
  mappings_[address] = {bytes, known ? handle : 0, next_id_++, {}};
  return CUDA_SUCCESS;
}

VmmMemory::Whose VmmMemory::Cover(CUdeviceptr address, uint64_t bytes,
                                  std::vector<Part>* parts) const {
  MutexLock lock(mutex_);
  bool ours = false;
  auto mapping = Around(address);
  if (mapping == mappings_.end()) mapping = mappings_.lower_bound(address);
  const bool begins = mapping == mappings_.end() || mapping->first >= address;
  bool gaps = false;
  CUdeviceptr next = address;
  for (;
       mapping != mappings_.end() && (mapping->first < address || mapping->first - address < bytes);
       ++mapping) {
    const Mapped& mapped = mapping->second;
    Extent* const extent = mapped.handle == 0 ? nullptr : physical_.at(mapped.handle).extent;
    parts->push_back({mapping->first, mapped.bytes, mapped.handle, extent});
    ours |= extent != nullptr;
    gaps |= mapping->first != next;
    next = mapping->first + mapped.bytes;
  }
  if (!ours) return Whose::kDrivers;
  if (!begins || next - address > bytes) return Whose::kInvalid;
  return gaps || next - address < bytes ? Whose::kOursWithGaps : Whose::kOurs;
}

void VmmMemory::Forget(const Part& part) {
  {
    MutexLock lock(mutex_);
    mappings_.erase(part.address);
    if (part.handle == 0) return;
    --physical_.at(part.handle).mappings;
  }
  DropIfUnused(part.handle);
}

CUresult VmmMemory::Unmap(CUdeviceptr address, uint64_t bytes) {
  MutexLock swap_lock(swapper_->mutex());
  std::vector<Part> parts;
  const Whose whose = Cover(address, bytes, &parts);
  if (whose == Whose::kInvalid) return CUDA_ERROR_INVALID_VALUE;
  if (whose == Whose::kDrivers) {
    const CUresult result = real_->cuMemUnmap(address, bytes);
    if (result != CUDA_SUCCESS) return result;
  } else {
    // The driver's first: they may be refused.
    for (const Part& part : parts) {
      if (part.extent != nullptr) continue;
      const CUresult result = real_->cuMemUnmap(part.address, part.bytes);
      if (result != CUDA_SUCCESS) return result;
      Forget(part);
    }
  }
  for (const Part& part : parts) {
    const bool done = whose != Whose::kDrivers && part.extent == nullptr;
    if (done) continue;
    if (part.extent != nullptr) RemoveAlias(*real_, part.extent, part.address);
    Forget(part);
  }
  return CUDA_SUCCESS;
}

// What the driver would say to it where nothing is on the card to be asked about.
CUresult VmmMemory::CheckUser(const CUmemAccessDesc& access) const {
  switch (access.flags) {
    case CU_MEM_ACCESS_FLAGS_PROT_NONE:
    case CU_MEM_ACCESS_FLAGS_PROT_READ:
    case CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (access.location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA) {
    int node = -1;
    const CUresult known =
        real_->cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device_);
    return known == CUDA_SUCCESS && node == access.location.id ? CUDA_SUCCESS
                                                               : CUDA_ERROR_INVALID_VALUE;
  }
  CUdevice found = 0;
  if (access.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  return real_->cuDeviceGet(&found, access.location.id);
}

std::optional<CUresult> VmmMemory::SetAccess(CUdeviceptr address, uint64_t bytes,
                                             const CUmemAccessDesc* access, size_t count) {
  MutexLock swap_lock(swapper_->mutex());
  std::vector<Part> parts;
  const Whose whose = Cover(address, bytes, &parts);
  if (whose == Whose::kDrivers) return std::nullopt;
  if (whose != Whose::kOurs) return CUDA_ERROR_INVALID_VALUE;
  for (const CUmemAccessDesc& each : std::span(access, count)) {
    if (const CUresult result = CheckUser(each); result != CUDA_SUCCESS) return result;
  }
  for (const Part& part : parts) {
    const CUresult result = part.extent != nullptr
                                ? SetAliasAccess(*real_, part.extent, part.address, access, count)
                                : real_->cuMemSetAccess(part.address, part.bytes, access, count);
    if (result != CUDA_SUCCESS) return result;
    if (part.extent == nullptr) continue;
    const auto alias =
        std::find_if(part.extent->aliases.begin(), part.extent->aliases.end(),
                     [&](const Alias& each) { return each.address == part.address; });
    MutexLock lock(mutex_);
    mappings_.at(part.address).access = alias->access;
  }
  return CUDA_SUCCESS;
}

std::optional<CUresult> VmmMemory::GetAccess(CUdeviceptr address, const CUmemLocation& location,
                                             unsigned long long* flags) const {
  MutexLock lock(mutex_);
  const auto mapping = Around(address);
  if (mapping == mappings_.end() || mapping->second.handle == 0 ||
      physical_.at(mapping->second.handle).extent == nullptr) {
    return std::nullopt;
  }
  if (const CUresult result = CheckUser({location, CU_MEM_ACCESS_FLAGS_PROT_NONE});
      result != CUDA_SUCCESS) {
    return result;
  }
  *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  for (const CUmemAccessDesc& each : mapping->second.access) {
    if (SamePlace(each.location, location)) *flags = each.flags;
  }
  return CUDA_SUCCESS;
}

std::optional<CUresult> VmmMemory::PrepareExport(Handle handle, CUmemAllocationHandleType type) {
  uint64_t bytes = 0;
  {
    MutexLock lock(mutex_);
    const auto found = physical_.find(handle);
    if (found == physical_.end() || found->second.extent == nullptr) return std::nullopt;
    const Physical& physical = found->second;
    if (physical.references == 0 || (physical.properties.requestedHandleTypes & type) == 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (physical.fixed != Bytes()) return CUDA_SUCCESS;
    bytes = physical.bytes;
  }
  if (!source_.reclaim->MakeRoom(Bytes(bytes))) return CUDA_ERROR_OUT_OF_MEMORY;
  MutexLock lock(mutex_);
  const auto found = physical_.find(handle);
  const bool first = found != physical_.end() && found->second.fixed == Bytes();
  if (first) {
    found->second.fixed = Bytes(bytes);
  } else {
    fixed_->GiveBack(Bytes(bytes));  // another thread was faster
  }
  return CUDA_SUCCESS;
}

CUresult VmmMemory::Export(Handle handle, const std::function<CUresult(Handle)>& give) {
  MutexLock swap_lock(swapper_->mutex());
  Extent* extent = nullptr;
  uint64_t bytes = 0;
  {
    MutexLock lock(mutex_);
    const auto found = physical_.find(handle);
    if (found == physical_.end()) return CUDA_ERROR_INVALID_VALUE;  // released since
    extent = found->second.extent;
    bytes = found->second.bytes;
  }
  // Under an open gate it is on the card or cold, but for a program of which nothing is swapped any
  // more. What is cold cannot be exported.
  const CUresult result = extent->chunks[0].state == Chunk::State::kHere
                              ? give(extent->chunks[0].handle)
                              : CUDA_ERROR_OUT_OF_MEMORY;
  if (extent->pinned) return result;
  if (result != CUDA_SUCCESS) {
    MutexLock lock(mutex_);
    fixed_->GiveBack(std::exchange(physical_.at(handle).fixed, Bytes()));
    return result;
  }
  memory_->Pin(extent);
  source_.shrink(Bytes(bytes));
  return CUDA_SUCCESS;
}

std::optional<VmmMemory::Mapping> VmmMemory::Find(CUdeviceptr pointer) const {
  MutexLock lock(mutex_);
  const auto mapping = Around(pointer);
  if (mapping == mappings_.end()) return std::nullopt;
  const Mapped& mapped = mapping->second;
  Mapping found{.address = mapping->first, .bytes = mapped.bytes, .id = mapped.id};
  if (mapped.handle == 0) return found;
  const Physical& physical = physical_.at(mapped.handle);
  found.ours = physical.extent != nullptr;
  if (found.ours) found.home = physical.extent->address;
  found.handle_types = static_cast<uint64_t>(physical.properties.requestedHandleTypes);
  for (const CUmemAccessDesc& each : mapped.access) {
    if (SamePlace(each.location, physical.properties.location)) found.flags = each.flags;
  }
  return found;
}

CUdeviceptr VmmMemory::HomeOf(CUdeviceptr pointer) const {
  MutexLock lock(mutex_);
  const auto mapping = Around(pointer);
  if (mapping == mappings_.end() || mapping->second.handle == 0) return 0;
  const Extent* const extent = physical_.at(mapping->second.handle).extent;
  return extent == nullptr ? 0 : extent->address + (pointer - mapping->first);
}

bool VmmMemory::AnyIn(CUdeviceptr address, uint64_t bytes) const {
  std::vector<Part> parts;
  return Cover(address, bytes, &parts) != Whose::kDrivers;
}

}  // namespace tandem::shim
