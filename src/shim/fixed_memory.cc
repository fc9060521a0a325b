#include "src/shim/fixed_memory.h"

namespace tandem::shim {

void FixedMemory::Put(const void* object, const Piece& piece) {
  MutexLock lock(mutex_);
  pieces_[object] = piece;
}

FixedMemory::Piece FixedMemory::Take(const void* object) {
  MutexLock lock(mutex_);
  const auto found = pieces_.find(object);
  if (found == pieces_.end()) return {};
  const Piece piece = found->second;
  pieces_.erase(found);
  return piece;
}

Bytes FixedMemory::TakeAll(CUcontext context) {
  Bytes taken;
  MutexLock lock(mutex_);
  std::erase_if(pieces_, [&](const auto& entry) {
    if (entry.second.context != context) return false;
    taken += entry.second.bytes;
    return true;
  });
  return taken;
}

}  // namespace tandem::shim
