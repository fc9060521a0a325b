// Where the host copies of chunks lie, and which of them are kept while their chunk is on the card.
#include <algorithm>
#include <utility>

#include "src/shim/swap/mover.h"

namespace tandem::shim {

// Not the chunk's any more.
std::byte* Mover::TakeFrom(Chunk* chunk) {
  chunk->print.reset();
  return std::exchange(chunk->host, nullptr);
}

// Takes a copy that is only kept, preferably of a chunk that the last check found modified.
std::byte* Mover::TakeKept(uint64_t bytes) {
  if (!spare_.has_value()) {
    spare_.emplace();
    for (const Place& place : memory_->Resident()) {
      if (place.chunk->host != nullptr) spare_->push_back(place.chunk);
    }
    std::stable_sort(spare_->begin(), spare_->end(),
                     [](const Chunk* a, const Chunk* b) { return a->modified < b->modified; });
  }
  for (size_t i = spare_->size(); i-- > 0;) {
    Chunk* const chunk = (*spare_)[i];
    if (chunk->bytes != bytes) continue;
    spare_->erase(spare_->begin() + static_cast<ptrdiff_t>(i));
    // Or it is not there any more, or is needed after all.
    if (chunk->exposed && chunk->host != nullptr) return TakeFrom(chunk);
  }
  return nullptr;
}

// Kept copies make room before more of the host's memory is taken.
std::byte* Mover::TakeSlot(Chunk* chunk) {
  if (chunk->host != nullptr) return TakeFrom(chunk);
  if (std::byte* const slot = arena_.TakeToWrite(chunk->bytes)) return slot;
  if (std::byte* const slot = TakeKept(chunk->bytes)) return slot;
  DropKeptBeyond(Bytes());
  return arena_.Take(chunk->bytes);
}

void Mover::DropKeptBeyond(Bytes most) {
  for (const bool modified : {true, false}) {
    if (arena_.used() <= most.count) return;
    for (const Place& place : memory_->Resident()) {
      Chunk& chunk = *place.chunk;
      if (arena_.used() <= most.count) return;
      if (chunk.exposed && (chunk.modified != 0) == modified) DropHostCopy(&chunk);
    }
  }
}

bool Mover::MakeHostCopy(Chunk* chunk) {
  chunk->host = arena_.TakeMade(chunk->bytes);
  if (chunk->host == nullptr) {
    // What is only kept shall not be in the way: PrepareHostMemory zeroes it, for another try.
    std::byte* const kept = TakeKept(chunk->bytes);
    spare_.reset();
    if (kept != nullptr) arena_.Return(kept, chunk->bytes, MonotonicNow());
    return false;
  }
  memory_->CountSwapped(static_cast<int64_t>(chunk->bytes));
  return true;
}

void Mover::DropHostCopy(Chunk* chunk) {
  if (chunk->host == nullptr) return;
  if (!chunk->mapped()) memory_->CountSwapped(-static_cast<int64_t>(chunk->bytes));
  arena_.Return(TakeFrom(chunk), chunk->bytes, MonotonicNow());
}

}  // namespace tandem::shim
