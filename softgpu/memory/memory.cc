#include "softgpu/memory/memory.h"

#include <algorithm>

namespace tandem::soft {

std::optional<Memory::Found> Memory::FindInPool(const Pool& pool, uint64_t address) {
  const auto block = pool.Find(address);
  if (!block) return std::nullopt;
  return Found{.kind = Found::Kind::kBlock,
               .range = block->range,
               .number = block->number,
               .device = pool.device->ordinal(),
               .pool = pool.id,
               .handle_types = pool.apart() ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                            : CU_MEM_HANDLE_TYPE_NONE};
}

uint64_t Memory::AllocateOn(DeviceVram* device, uint64_t owner, uint64_t bytes, Heap::Use use,
                            Heap::Users users) {
  uint64_t address = 0;
  Manage(device,
         [&] { return (address = device->heap().Allocate(owner, bytes, use, users)) != 0; });
  return address;
}

std::optional<Memory::Found> Memory::Find(uint64_t address) {
  for (const HeapOf& heap : heaps_) {
    if (const auto block = heap.heap->Find(address)) {
      if (Pool* pool = pools_.OfOwner(block->owner)) return FindInPool(*pool, address);
      return Found{.kind = Found::Kind::kBlock,
                   .range = Range{block->address, block->size},
                   .owner = block->owner,
                   .number = block->number,
                   .device = heap.device,
                   .internal = block->internal,
                   .shareable = !block->internal && block->managed == nullptr,
                   .managed = block->managed};
    }
  }
  if (const Pool* pool = pools_.Around(address)) return FindInPool(*pool, address);
  if (const auto block = ipc_.Find(address)) {
    return Found{.kind = Found::Kind::kBlock,
                 .range = block->range,
                 .owner = block->owner,
                 .number = block->number,
                 .device = block->device};
  }
  if (const auto block = graphs_.Find(address)) {
    return Found{.kind = Found::Kind::kBlock,
                 .range = block->range,
                 .of_graph = true,
                 .owner = block->owner,
                 .number = block->number,
                 .device = block->device->ordinal()};
  }
  if (const auto mapping = vmm_.Find(address)) {
    return Found{.kind = Found::Kind::kMapping,
                 .range = mapping->range,
                 .number = mapping->handle,
                 .device = mapping->device,
                 .handle_types = mapping->handle_types,
                 .access = mapping->access,
                 .copies = mapping->copies};
  }
  if (const auto block = host_.Find(address)) {
    const bool read_only = block->registered && (block->flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
    const Access access = read_only ? Access::kRead : Access::kReadWrite;
    return Found{.kind = Found::Kind::kHost,
                 .range = block->range,
                 .owner = block->owner,
                 .number = block->number,
                 .access = access,
                 .copies = access};
  }
  return std::nullopt;
}

bool Memory::Usable(uint64_t address, uint64_t bytes, Access access) {
  MutexLock lock(mutex_);
  while (bytes > 0) {
    const auto found = Find(address);
    if (!found || found->copies < access) return false;
    const uint64_t here = found->range.end() - address;
    if (bytes <= here) return true;
    if (found->kind != Found::Kind::kMapping) return false;
    address += here;
    bytes -= here;
  }
  return true;
}

bool Memory::IsDeviceAddress(uint64_t address) {
  if (!space_->Contains(address)) return false;
  MutexLock lock(mutex_);
  const auto found = Find(address);
  return !found || !IsOfHost(*found);
}

bool Memory::IsSynchronous(uint64_t address) {
  MutexLock lock(mutex_);
  if (synchronous_.empty()) return false;
  const auto found = Find(address);
  if (!found) return false;
  const auto set = synchronous_.find(found->range.begin);
  return set != synchronous_.end() && set->second == found->number;
}

bool Memory::SetSynchronous(uint64_t address, bool synchronous) {
  MutexLock lock(mutex_);
  const auto found = Find(address);
  if (!found) return false;
  if (synchronous) synchronous_[found->range.begin] = found->number;
  if (!synchronous) synchronous_.erase(found->range.begin);
  return true;
}

bool Memory::IsPinned(uint64_t address, uint64_t bytes) {
  MutexLock lock(mutex_);
  const auto found = Find(address);
  return found && IsOfHost(*found) && bytes <= found->range.end() - address;
}

}  // namespace tandem::soft
