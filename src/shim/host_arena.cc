#include "src/shim/host_arena.h"

#include <sys/mman.h>

namespace tandem::shim {
namespace {

constexpr uint64_t kAlignment = 4096;

void* At(uint64_t address) {
  return reinterpret_cast<void*>(address);
}

}  // namespace

HostArena::~HostArena() {
  for (const Mapping& mapping : mappings_) Remove(mapping);
}

bool HostArena::Add() {
  void* const begin =
      mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) return false;
  // A forked child has no use for it, and must not see it.
  madvise(begin, mapping_bytes_, MADV_DONTFORK);
  const bool registered = real_->cuMemHostRegister_v2 != nullptr &&
                          real_->cuMemHostRegister_v2(begin, mapping_bytes_,
                                                      CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS;
  const auto address = reinterpret_cast<uint64_t>(begin);
  mappings_.push_back({address, registered, RangeAllocator(address, mapping_bytes_), 0, {}});
  return true;
}

void HostArena::Remove(const Mapping& mapping) {
  if (mapping.registered) real_->cuMemHostUnregister(At(mapping.begin));
  munmap(At(mapping.begin), mapping_bytes_);
}

std::byte* HostArena::Take(uint64_t bytes) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (Mapping& mapping : mappings_) {
      if (const auto begin = mapping.free.Take(bytes, kAlignment)) {
        mapping.used += bytes;
        return static_cast<std::byte*>(At(*begin));
      }
    }
    if (attempt == 0 && !Add()) break;
  }
  return nullptr;
}

void HostArena::Return(std::byte* begin, uint64_t bytes, Instant now) {
  const auto address = reinterpret_cast<uint64_t>(begin);
  for (Mapping& mapping : mappings_) {
    if (address < mapping.begin || address - mapping.begin >= mapping_bytes_) continue;
    if (mapping.free.Give(address, bytes)) mapping.used -= bytes;
    mapping.unused_since = now;
    return;
  }
}

void HostArena::Trim(Instant now, Duration age) {
  std::erase_if(mappings_, [&](const Mapping& mapping) {
    if (mapping.used != 0 || now - mapping.unused_since < age) return false;
    Remove(mapping);
    return true;
  });
}

void HostArena::Unregister() {
  for (Mapping& mapping : mappings_) {
    if (mapping.registered) real_->cuMemHostUnregister(At(mapping.begin));
    mapping.registered = false;
  }
}

}  // namespace tandem::shim
