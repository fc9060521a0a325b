#include "softgpu/card/physical_store.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

namespace tandem::soft {

Result<std::unique_ptr<PhysicalStore>> PhysicalStore::Create(SharedDevice* shared,
                                                             const CUuuid& device,
                                                             ShareableMemory::Use use) {
  const uint64_t size = shared->total().count / kPageBytes * kPageBytes;
  auto memory = ShareableMemory::Create(use, size, device);
  if (memory == nullptr) {
    return Error{ErrorCode::kFailed, std::string("cannot set VRAM up: ") + std::strerror(errno)};
  }
  return std::unique_ptr<PhysicalStore>(new PhysicalStore(shared, std::move(memory)));
}

std::vector<Range> PhysicalStore::Allocate(uint64_t bytes) {
  if (bytes > memory_->size() || !shared_->Charge(Bytes(bytes))) return {};
  const uint64_t here = std::min(bytes, kept_bytes_);
  std::vector<Range> pieces;
  if (here > 0) {
    pieces = kept_.TakePieces(here);
    kept_bytes_ -= here;
    for (const Range& piece : pieces) std::memset(memory_->window() + piece.begin, 0, piece.size);
  }
  if (here == bytes) return pieces;
  const std::vector<Range> others = absent_.TakePieces(bytes - here);
  if (others.empty()) std::abort();  // the ledger would have refused
  pieces.insert(pieces.end(), others.begin(), others.end());
  return pieces;
}

void PhysicalStore::Free(const std::vector<Range>& pieces) {
  for (const Range& piece : pieces) {
    FreePiece(piece);
    shared_->Return(Bytes(piece.size));
  }
}

void PhysicalStore::FreePiece(const Range& piece) {
  const uint64_t kept = std::min(piece.size, kMostKept - kept_bytes_);
  if (kept > 0 && !kept_.Give(piece.begin, kept)) std::abort();
  kept_bytes_ += kept;
  const Range rest{piece.begin + kept, piece.size - kept};
  if (rest.size == 0) return;
  uint8_t* const memory = memory_->window() + rest.begin;
  if (madvise(memory, rest.size, MADV_REMOVE) != 0) {
    // The program may have locked all of its memory (mlockall).
    munlock(memory, rest.size);
    if (madvise(memory, rest.size, MADV_REMOVE) != 0) std::abort();
  }
  if (!absent_.Give(rest.begin, rest.size)) std::abort();
}

bool PhysicalStore::MapAt(AddressSpace& space, uint64_t address, const std::vector<Range>& pieces) {
  uint64_t mapped = 0;
  for (const Range& piece : pieces) {
    if (!space.Map(address + mapped, memory_->window() + piece.begin, piece.size)) {
      if (mapped > 0) space.Unmap(address, mapped);
      return false;
    }
    mapped += piece.size;
  }
  return true;
}

void PhysicalStore::KeepTables(AddressSpace& space, uint64_t address,
                               const std::vector<Range>& pieces) {
  for (const Range& piece : pieces) {
    space.ReturnTables(address, memory_->window() + piece.begin, piece.size);
    address += piece.size;
  }
}

}  // namespace tandem::soft
