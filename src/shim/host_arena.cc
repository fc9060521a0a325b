#include "src/shim/host_arena.h"

#include <sys/mman.h>

#include <cstring>

namespace tandem::shim {

HostArena::~HostArena() {
  for (Mapping& mapping : mappings_) Remove(mapping);
}

bool HostArena::Add() {
  const uint64_t bytes = kSlots * slot_bytes_;
  void* const begin =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) return false;
  // A forked child has no use for it, and must not see it.
  madvise(begin, bytes, MADV_DONTFORK);
  Mapping mapping{static_cast<std::byte*>(begin), false, {}, std::vector<bool>(kSlots), {}};
  mapping.registered =
      real_->cuMemHostRegister_v2 != nullptr &&
      real_->cuMemHostRegister_v2(begin, bytes, CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS;
  for (uint32_t slot = kSlots; slot-- > 0;) mapping.free.push_back(slot);
  mappings_.push_back(std::move(mapping));
  return true;
}

void HostArena::Remove(Mapping& mapping) {
  if (mapping.registered) real_->cuMemHostUnregister(mapping.begin);
  munmap(mapping.begin, kSlots * slot_bytes_);
}

std::byte* HostArena::Take(uint64_t bytes) {
  Mapping* found = nullptr;
  for (Mapping& mapping : mappings_) {
    if (!mapping.free.empty()) found = &mapping;
  }
  if (found == nullptr) {
    if (!Add()) return nullptr;
    found = &mappings_.back();
  }
  const uint32_t slot = found->free.back();
  found->free.pop_back();
  std::byte* const begin = found->begin + slot * slot_bytes_;
  // The first `bytes` are about to be overwritten.
  if (found->dirty[slot]) std::memset(begin + bytes, 0, slot_bytes_ - bytes);
  found->dirty[slot] = true;
  return begin;
}

void HostArena::Return(std::byte* slot, Instant now) {
  for (Mapping& mapping : mappings_) {
    if (slot < mapping.begin || slot >= mapping.begin + kSlots * slot_bytes_) continue;
    const auto offset = static_cast<uint64_t>(slot - mapping.begin);
    mapping.free.push_back(static_cast<uint32_t>(offset / slot_bytes_));
    mapping.unused_since = now;
    return;
  }
}

void HostArena::Trim(Instant now, Duration age) {
  std::erase_if(mappings_, [&](Mapping& mapping) {
    if (mapping.free.size() < kSlots || now - mapping.unused_since < age) return false;
    Remove(mapping);
    return true;
  });
}

void HostArena::Unregister() {
  for (Mapping& mapping : mappings_) {
    if (mapping.registered) real_->cuMemHostUnregister(mapping.begin);
    mapping.registered = false;
  }
}

}  // namespace tandem::shim
