// HostMemory: the host's page-locked memory, made here (cuMemHostAlloc) or registered by the
// program. Kernels use both by their own addresses: memory made here lies among the device
// addresses, and registered memory is a range beside them.
//
// Threading: the owner serialises all calls.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "softgpu/card/address_space.h"
#include "src/base/ranges.h"
#include "src/cuda/driver_types.h"

namespace tandem::soft {

class HostMemory {
 public:
  using Owner = uint64_t;
  struct Block {
    Range range;
    unsigned int flags = 0;
    Owner owner = 0;
    bool registered = false;  // the program's own memory
    uint64_t number = 0;      // never used twice
  };

  // REQUIRES: outlives this.
  explicit HostMemory(AddressSpace* space) : space_(space) {}

  CUresult Allocate(Owner owner, uint64_t bytes, unsigned int flags, void** pointer);
  CUresult Free(void* pointer);
  CUresult Register(Owner owner, void* pointer, uint64_t bytes, unsigned int flags);
  CUresult Unregister(void* pointer);
  void FreeAll(Owner owner);

  std::optional<Block> Find(uint64_t address) const;

 private:
  using Blocks = std::map<uint64_t, Block>;  // by address
  void Drop(Blocks::iterator block);

  AddressSpace* const space_;
  Blocks blocks_;
};

}  // namespace tandem::soft
