#include "src/shim/memory/fixed_memory.h"

namespace tandem::shim {
namespace {

constexpr Bytes kCardPage = MiB(2);
constexpr Bytes kSmallPiece = MiB(1);

Bytes Pages(Bytes bytes) {
  return bytes.count > UINT64_MAX - kCardPage.count
             ? bytes
             : Bytes((bytes.count + kCardPage.count - 1) / kCardPage.count * kCardPage.count);
}

bool SharesPages(const FixedMemory::Piece& piece) {
  return piece.kind != FixedMemory::Kind::kNone && piece.bytes < kSmallPiece;
}

// Of a piece that shares none.
Bytes OwnBytes(const FixedMemory::Piece& piece) {
  return piece.kind == FixedMemory::Kind::kNone ? piece.bytes : Pages(piece.bytes);
}

}  // namespace

bool FixedMemory::Reserve(const Piece& piece) {
  if (!SharesPages(piece)) return Reserve(OwnBytes(piece));
  const SharedKey key{piece.context, piece.kind};
  Bytes lacking;
  {
    MutexLock lock(mutex_);
    Shared& shared = shared_[key];
    shared.wanted += piece.bytes;
    lacking = SaturatingSubtract(Pages(shared.wanted), shared.reserved);
  }
  // Another thread may wait for the same page: then there is one too many in the end.
  const bool granted = lacking == Bytes() || Reserve(lacking);
  bool room = granted;
  Bytes surplus;
  {
    MutexLock lock(mutex_);
    Shared& shared = shared_[key];
    if (granted) shared.reserved += lacking;
    room = Pages(shared.wanted) <= shared.reserved;
    if (!room) shared.wanted = SaturatingSubtract(shared.wanted, piece.bytes);
    surplus = TakeSurplus(key);
  }
  GiveBack(surplus);
  return room;
}

void FixedMemory::GiveBack(const Piece& piece) {
  if (!SharesPages(piece)) return GiveBack(OwnBytes(piece));
  const SharedKey key{piece.context, piece.kind};
  Bytes surplus;
  {
    MutexLock lock(mutex_);
    Shared& shared = shared_[key];
    shared.wanted = SaturatingSubtract(shared.wanted, piece.bytes);
    surplus = TakeSurplus(key);
  }
  GiveBack(surplus);
}

Bytes FixedMemory::TakeSurplus(const SharedKey& key) {
  const auto found = shared_.find(key);
  Shared& shared = found->second;
  const Bytes surplus = SaturatingSubtract(shared.reserved, Pages(shared.wanted));
  shared.reserved -= surplus;
  if (shared.wanted == Bytes()) shared_.erase(found);
  return surplus;
}

void FixedMemory::Put(const void* object, const Piece& piece) {
  MutexLock lock(mutex_);
  pieces_[object] = piece;
}

bool FixedMemory::PutNew(const void* object, const Piece& piece) {
  MutexLock lock(mutex_);
  return pieces_.try_emplace(object, piece).second;
}

bool FixedMemory::Has(const void* object) {
  MutexLock lock(mutex_);
  return pieces_.count(object) != 0;
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
    const Piece& piece = entry.second;
    if (piece.context != context) return false;
    if (!SharesPages(piece)) taken += OwnBytes(piece);
    return true;
  });
  std::erase_if(shared_, [&](const auto& entry) {
    if (entry.first.first != context) return false;
    taken += entry.second.reserved;
    return true;
  });
  return taken;
}

}  // namespace tandem::shim
