// Heap: the blocks of cuMemAlloc on one device. Blocks from 1 MiB on have pages of their own;
// smaller ones share pages, in steps of 512 bytes, and a page is given back when its last block
// is. A page is shared only by blocks of one owner (a context), so that an owner's end frees all
// that it was charged for, and only by blocks that the same devices use. Blocks that every device
// uses are managed memory; they take whole pages of the host's, for advice is about such pages.
//
// Threading: the owner serialises all calls.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "softgpu/card/address_space.h"
#include "softgpu/card/physical_store.h"
#include "softgpu/memory/managed.h"

namespace tandem::soft {

inline constexpr uint64_t kBlockAlignment = 512;

inline constexpr uint64_t RoundToBlock(uint64_t bytes) {
  return (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
}

class Heap {
 public:
  using Owner = uint64_t;
  struct Block {
    uint64_t address = 0;
    uint64_t size = 0;  // as asked for
    Owner owner = 0;
    uint64_t number = 0;  // never used twice
    bool internal = false;
    std::shared_ptr<ManagedBlock> managed;  // null for what is not managed
  };
  // Who a block is for: the program, which may free it, or the driver, for something that the
  // program knows by another name (a module's variables, an array).
  enum class Use { kProgram, kDriver };

  // Which devices use a block: its own and those that have leave, or all, and the host.
  enum class Users { kItsDevice, kEveryDevice };

  // REQUIRES: both outlive the heap.
  Heap(AddressSpace* space, PhysicalStore* store, int device)
      : space_(space), store_(store), device_(device) {}

  // The block's address; zero if VRAM is full. REQUIRES: bytes > 0.
  uint64_t Allocate(Owner owner, uint64_t bytes, Use use = Use::kProgram,
                    Users users = Users::kItsDevice);
  // False if no block begins at `address`.
  bool Free(uint64_t address);
  void FreeAll(Owner owner);
  // The block around `address`.
  std::optional<Block> Find(uint64_t address) const;
  // The same, and where its pages lie in the store.
  struct Backing {
    Block block;
    uint64_t begin = 0;  // of the pages
    const std::vector<Range>* pieces = nullptr;
    const PhysicalStore* store = nullptr;
  };
  std::optional<Backing> BackingOf(uint64_t address) const;

 private:
  // All of one large block, or one page with small ones.
  struct Pages {
    Owner owner = 0;
    Users users = Users::kItsDevice;
    uint64_t size = 0;
    std::vector<Range> pieces;
    std::optional<RangeAllocator> small;  // what is free of a page with small blocks
    int blocks = 0;
  };

  uint64_t AllocateSmall(Owner owner, uint64_t bytes, Users users);
  uint64_t NewPages(Owner owner, uint64_t size, Users users);
  void DropPages(std::map<uint64_t, Pages>::iterator pages);

  AddressSpace* const space_;
  PhysicalStore* const store_;
  const int device_;
  std::map<uint64_t, Pages> pages_;   // by address
  std::map<uint64_t, Block> blocks_;  // by address
};

}  // namespace tandem::soft
