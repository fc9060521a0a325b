// PhysicalStore: the memory behind this process's part of one device's VRAM, or behind a pool that
// other processes may use: a sparse file as large as the whole VRAM, whose pages are given out.
//
// Threading: the owner serialises all calls.
//
// Invariants:
// 1. Allocated memory is charged to the device's ledger; a charge that fails allocates nothing.
// 2. Memory reads as zero when it is given out. Freed memory is the host's again at once, but for a
//    part that stays for the next allocation: a card's memory is there, and a copy to it does not
//    wait until the host has found some. The part's page tables stay as well.
// 3. A program that closes all of its descriptors does no harm: the memory is held by its mapping.
//    The descriptor is kept only for other processes to find, and forked children inherit neither.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "softgpu/card/address_space.h"
#include "softgpu/card/shareable_memory.h"
#include "softgpu/card/shared_device.h"
#include "src/base/bytes.h"
#include "src/base/ranges.h"
#include "src/base/result.h"

namespace tandem::soft {

class PhysicalStore {
 public:
  static constexpr uint64_t kMostKept = MiB(64).count;

  // `device` and `use` are what the file says of itself. REQUIRES: the shared device outlives the
  // store.
  static Result<std::unique_ptr<PhysicalStore>> Create(
      SharedDevice* shared, const CUuuid& device = {},
      ShareableMemory::Use use = ShareableMemory::Use::kDevice);
  ~PhysicalStore() = default;
  PhysicalStore(const PhysicalStore&) = delete;
  PhysicalStore& operator=(const PhysicalStore&) = delete;

  // Pieces that add up to `bytes`, a multiple of the page size; empty if VRAM is full.
  std::vector<Range> Allocate(uint64_t bytes);
  void Free(const std::vector<Range>& pieces);
  // The part of the free memory that the host has not got back.
  uint64_t kept() const { return kept_bytes_; }

  const ShareableMemory& memory() const { return *memory_; }

  // Charges, and gives back, memory that comes from elsewhere.
  bool Charge(uint64_t bytes) { return shared_->Charge(Bytes(bytes)); }
  void Return(uint64_t bytes) { shared_->Return(Bytes(bytes)); }
  // From now on. REQUIRES: all allocated memory is charged there.
  void ChargeTo(SharedDevice* shared) { shared_ = shared; }

  // Maps the pieces one after the other from `address` on; undoes it all on failure.
  bool MapAt(AddressSpace& space, uint64_t address, const std::vector<Range>& pieces);
  // Before they are unmapped there: keeps their page tables for the next mapping.
  void KeepTables(AddressSpace& space, uint64_t address, const std::vector<Range>& pieces);

 private:
  PhysicalStore(SharedDevice* shared, std::shared_ptr<ShareableMemory> memory)
      : shared_(shared), memory_(std::move(memory)), absent_(0, memory_->size()) {}

  void FreePiece(const Range& piece);

  SharedDevice* shared_;
  const std::shared_ptr<ShareableMemory> memory_;
  RangeAllocator absent_;    // free, and not in the host's memory
  RangeAllocator kept_;      // free, and there
  uint64_t kept_bytes_ = 0;  // of it
};

}  // namespace tandem::soft
