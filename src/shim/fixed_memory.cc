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

void FixedMemory::ContextEnded(CUcontext context) {
  Bytes gone;
  {
    MutexLock lock(mutex_);
    std::erase_if(pieces_, [&](const auto& entry) {
      if (entry.second.context != context) return false;
      gone += entry.second.bytes;
      return true;
    });
  }
  GiveBack(gone);
}

}  // namespace tandem::shim
