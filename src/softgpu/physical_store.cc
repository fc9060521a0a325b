#include "src/softgpu/physical_store.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

namespace tandem::soft {

Result<std::unique_ptr<PhysicalStore>> PhysicalStore::Create(SharedDevice* shared) {
  const uint64_t size = shared->total().count / kPageBytes * kPageBytes;
  const auto failed = [] {
    return Error{ErrorCode::kFailed, std::string("cannot set VRAM up: ") + std::strerror(errno)};
  };
  UniqueFd fd(memfd_create("tandem-soft-vram", MFD_CLOEXEC));
  if (!fd || ftruncate(fd.get(), static_cast<off_t>(size)) != 0) return failed();
  void* window =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd.get(), 0);
  if (window == MAP_FAILED) return failed();
  // Mappings made from the window keep this property.
  if (madvise(window, size, MADV_DONTFORK) != 0) return failed();
  return std::unique_ptr<PhysicalStore>(
      new PhysicalStore(shared, std::move(fd), static_cast<uint8_t*>(window), size));
}

PhysicalStore::~PhysicalStore() {
  munmap(window_, size_);
}

std::vector<Range> PhysicalStore::Allocate(uint64_t bytes) {
  if (bytes > size_ || !shared_->Charge(Bytes(bytes))) return {};
  std::vector<Range> pieces = free_.TakePieces(bytes);
  if (pieces.empty()) std::abort();  // the ledger would have refused
  return pieces;
}

void PhysicalStore::Free(const std::vector<Range>& pieces) {
  for (const Range& piece : pieces) {
    uint8_t* const memory = window_ + piece.begin;
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
    if (!space.Map(address + mapped, window_ + piece.begin, piece.size)) {
      if (mapped > 0) space.Unmap(address, mapped);
      return false;
    }
    mapped += piece.size;
  }
  return true;
}

}  // namespace tandem::soft
