#include "softgpu/memory/vmm.h"

#include <algorithm>
#include <iterator>

#include "softgpu/memory/handle_table.h"
#include "src/base/around.h"

namespace tandem::soft {
namespace {

bool WholePages(uint64_t value) {
  return value % kPageBytes == 0;
}

}  // namespace

CUresult Vmm::Reserve(uint64_t bytes, uint64_t alignment, uint64_t wanted, uint64_t* address) {
  if (bytes == 0 || !WholePages(bytes) || (alignment & (alignment - 1)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (bytes > space_->size()) return CUDA_ERROR_OUT_OF_MEMORY;
  if (alignment == 0) alignment = kPageBytes;
  const uint64_t reserved = space_->Reserve(bytes, alignment, wanted);
  if (reserved == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  reservations_[reserved] = bytes;
  *address = reserved;
  return CUDA_SUCCESS;
}

CUresult Vmm::FreeReservation(uint64_t address, uint64_t bytes) {
  const auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto mapping = mappings_.lower_bound(address);
  if (mapping != mappings_.end() && mapping->first < address + bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  reservations_.erase(found);
  space_->Free(address, bytes);
  return CUDA_SUCCESS;
}

CUresult Vmm::Create(PhysicalStore* store, const CUuuid& device, uint64_t bytes,
                     const CUmemAllocationProp& properties, Handle* handle) {
  if (bytes == 0 || !WholePages(bytes)) return CUDA_ERROR_INVALID_VALUE;
  Physical memory;
  memory.store = store;
  memory.size = bytes;
  memory.properties = properties;
  if (properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE) {
    memory.pieces = store->Allocate(bytes);
    if (memory.pieces.empty()) return CUDA_ERROR_OUT_OF_MEMORY;
  } else {
    if (!store->Charge(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    memory.shared = ShareableMemory::Create(ShareableMemory::Use::kMemory, bytes, device);
    if (memory.shared == nullptr) {
      store->Return(bytes);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  *handle = NewHandle();
  physical_.emplace(*handle, std::move(memory));
  return CUDA_SUCCESS;
}

CUresult Vmm::CreateOnHost(uint64_t bytes, const CUmemAllocationProp& properties, Handle* handle) {
  if (bytes == 0 || !WholePages(bytes)) return CUDA_ERROR_INVALID_VALUE;
  auto memory = ShareableMemory::Create(ShareableMemory::Use::kMemory, bytes, {});
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = Adopt(std::move(memory), properties);
  return CUDA_SUCCESS;
}

Vmm::Handle Vmm::Adopt(std::shared_ptr<ShareableMemory> shared,
                       const CUmemAllocationProp& properties) {
  Physical memory;
  memory.size = shared->size();
  memory.shared = std::move(shared);
  memory.properties = properties;
  const Handle handle = NewHandle();
  physical_.emplace(handle, std::move(memory));
  return handle;
}

CUresult Vmm::Export(Handle handle, int* fd) {
  const auto found = physical_.find(handle);
  if (found == physical_.end() || found->second.references == 0 || !found->second.shared) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int duplicate = found->second.shared->Duplicate();
  if (duplicate < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *fd = duplicate;
  return CUDA_SUCCESS;
}

bool Vmm::shares() const {
  return std::any_of(physical_.begin(), physical_.end(), [](const auto& entry) {
    const Physical& memory = entry.second;
    const bool of_device = memory.properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    return memory.shared != nullptr && of_device;
  });
}

CUresult Vmm::Retain(uint64_t address, Handle* handle) {
  const auto found = Find(address);
  if (!found) return CUDA_ERROR_INVALID_VALUE;
  physical_.at(found->handle).references += 1;
  *handle = found->handle;
  return CUDA_SUCCESS;
}

CUresult Vmm::Release(Handle handle) {
  const auto found = physical_.find(handle);
  if (found == physical_.end() || found->second.references == 0) return CUDA_ERROR_INVALID_VALUE;
  found->second.references -= 1;
  DropIfUnused(handle);
  return CUDA_SUCCESS;
}

void Vmm::DropIfUnused(Handle handle) {
  const auto found = physical_.find(handle);
  Physical& memory = found->second;
  if (memory.references > 0 || memory.mappings > 0) return;
  if (memory.shared == nullptr) {
    memory.store->Free(memory.pieces);
  } else if (memory.store != nullptr) {
    memory.store->Return(memory.size);
  }
  physical_.erase(found);
}

bool Vmm::InOneReservation(uint64_t address, uint64_t bytes) const {
  const auto found = FindAround(reservations_, address);
  return found != reservations_.end() && bytes <= found->second - (address - found->first);
}

CUresult Vmm::Map(uint64_t address, uint64_t bytes, Handle handle) {
  const auto found = physical_.find(handle);
  if (found == physical_.end() || found->second.references == 0) return CUDA_ERROR_INVALID_VALUE;
  Physical& memory = found->second;
  if (!WholePages(address) || bytes != memory.size || !InOneReservation(address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto after = mappings_.lower_bound(address);
  if (after != mappings_.end() && after->first < address + bytes) return CUDA_ERROR_INVALID_VALUE;
  if (after != mappings_.begin()) {
    const auto& [begin, mapping] = *std::prev(after);
    if (begin + mapping.size > address) return CUDA_ERROR_INVALID_VALUE;
  }
  const bool mapped = memory.shared != nullptr
                          ? space_->Map(address, memory.shared->window(), memory.size)
                          : memory.store->MapAt(*space_, address, memory.pieces);
  if (!mapped) return CUDA_ERROR_OUT_OF_MEMORY;
  memory.mappings += 1;
  mappings_[address] = Mapping{bytes, handle, {}};
  return CUDA_SUCCESS;
}

bool Vmm::Covers(uint64_t address, uint64_t bytes, Mappings::iterator* first,
                 Mappings::iterator* end) {
  if (bytes == 0) return false;
  *first = mappings_.find(address);
  uint64_t covered = 0;
  auto next = *first;
  while (next != mappings_.end() && next->first == address + covered && covered < bytes) {
    covered += next->second.size;
    ++next;
  }
  *end = next;
  return covered == bytes;
}

void Vmm::KeepTables(uint64_t address, const Mapping& mapping) {
  const Physical& memory = physical_.at(mapping.handle);
  if (memory.shared != nullptr) {
    space_->ReturnTables(address, memory.shared->window(), memory.size);
  } else {
    memory.store->KeepTables(*space_, address, memory.pieces);
  }
}

CUresult Vmm::Unmap(uint64_t address, uint64_t bytes) {
  if (bytes == 0 || !InOneReservation(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  auto first = mappings_.lower_bound(address);
  const auto end = mappings_.lower_bound(address + bytes);
  // Each mapping goes as a whole or stays.
  const auto ends_within = [](const auto& mapping, uint64_t there) {
    return mapping.first + mapping.second.size <= there;
  };
  if (first != mappings_.begin() && !ends_within(*std::prev(first), address)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (first == end) return CUDA_SUCCESS;
  if (!ends_within(*std::prev(end), address + bytes)) return CUDA_ERROR_INVALID_VALUE;
  while (first != end) {
    KeepTables(first->first, first->second);
    space_->Unmap(first->first, first->second.size);
    const Handle handle = first->second.handle;
    first = mappings_.erase(first);
    physical_.at(handle).mappings -= 1;
    DropIfUnused(handle);
  }
  return CUDA_SUCCESS;
}

int Vmm::DeviceOf(const Mapping& mapping) const {
  const CUmemLocation& location = physical_.at(mapping.handle).properties.location;
  return location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ? kHost : location.id;
}

CUresult Vmm::SetAccess(uint64_t address, uint64_t bytes, const std::vector<Grant>& grants) {
  Mappings::iterator first, end;
  if (!Covers(address, bytes, &first, &end)) return CUDA_ERROR_INVALID_VALUE;
  for (; first != end; ++first) {
    auto& [begin, mapping] = *first;
    for (const Grant& grant : grants) {
      mapping.users.erase(grant.device);
      if (grant.access != Access::kNone) mapping.users[grant.device] = grant.access;
    }
    Reach reach;
    for (const auto& [device, access] : mapping.users) {
      if (device != kHost) reach.Add(device, access);
    }
    space_->SetReach(begin, mapping.size, reach);
  }
  return CUDA_SUCCESS;
}

const CUmemAllocationProp* Vmm::PropertiesOf(Handle handle) const {
  const auto found = physical_.find(handle);
  if (found == physical_.end() || found->second.references == 0) return nullptr;
  return &found->second.properties;
}

std::optional<Vmm::Found> Vmm::Find(uint64_t address) const {
  const auto found = FindAround(mappings_, address, &Mapping::size);
  if (found == mappings_.end()) return std::nullopt;
  const auto& [begin, mapping] = *found;
  const int device = DeviceOf(mapping);
  const auto own = mapping.users.find(device);
  Access copies = Access::kNone;
  for (const auto& [user, access] : mapping.users) {
    if (user != kHost) copies = std::max(copies, access);
  }
  return Found{.range = Range{begin, mapping.size},
               .access = own == mapping.users.end() ? Access::kNone : own->second,
               .copies = copies,
               .device = device,
               .handle = mapping.handle,
               .handle_types = physical_.at(mapping.handle).properties.requestedHandleTypes,
               .users = mapping.users};
}

}  // namespace tandem::soft
