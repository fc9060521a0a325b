#include "src/softgpu/memory.h"

#include <algorithm>

namespace tandem::soft {

std::optional<Memory::Found> Memory::Find(uint64_t address) {
  for (const HeapOf& heap : heaps_) {
    if (const auto block = heap.heap->Find(address)) {
      return Found{
          Found::Kind::kBlock, Range{block->address, block->size}, block->owner, heap.device, false,
          Access::kReadWrite};
    }
  }
  if (const auto mapping = vmm_.Find(address)) {
    return Found{Found::Kind::kMapping, mapping->range, 0, mapping->device, false, mapping->access};
  }
  if (const auto block = host_.Find(address)) {
    return Found{Found::Kind::kHost, block->range,      block->owner, 0,
                 block->registered,  Access::kReadWrite};
  }
  return std::nullopt;
}

bool Memory::Usable(uint64_t address, uint64_t bytes, Access access) {
  MutexLock lock(mutex_);
  while (bytes > 0) {
    const auto found = Find(address);
    if (!found || (found->kind == Found::Kind::kHost && found->registered)) return false;
    if (found->access < access) return false;
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
  return !host_.Find(address).has_value();
}

bool Memory::IsPinned(uint64_t address, uint64_t bytes) {
  MutexLock lock(mutex_);
  return host_.IsPinned(reinterpret_cast<const void*>(address), bytes);
}

}  // namespace tandem::soft
