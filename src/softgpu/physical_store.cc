#include "src/softgpu/physical_store.h"

#include <sys/mman.h>

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
  std::vector<Range> pieces = free_.TakePieces(bytes);
  if (pieces.empty()) std::abort();  // the ledger would have refused
  return pieces;
}

void PhysicalStore::Free(const std::vector<Range>& pieces) {
  for (const Range& piece : pieces) {
    uint8_t* const memory = memory_->window() + piece.begin;
    if (madvise(memory, piece.size, MADV_REMOVE) != 0) {
      // The program may have locked all of its memory (mlockall).
      munlock(memory, piece.size);
      if (madvise(memory, piece.size, MADV_REMOVE) != 0) std::abort();
    }
    if (!free_.Give(piece.begin, piece.size)) std::abort();
    shared_->Return(Bytes(piece.size));
  }
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

}  // namespace tandem::soft
