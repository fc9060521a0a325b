// IpcMemory: blocks of cuMemAlloc that are shared between processes by a handle of 64 bytes.
//
// A handle names a ticket, a small memfd of the process that made it, which says where in the
// memory behind its VRAM the block lies. The opening process reaches both by /proc, as far as the
// kernel lets one process into the other: both have to be the same user's. Small blocks share pages
// with others of their owner, so that these are shared along.
//
// Threading: the owner serialises all calls.
//
// Invariant: memory stays charged to the process that allocated it, and goes with that process's
// cuMemFree in all of them; what a mapping shows after that is undefined, as the driver says.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "softgpu/card/kept_fd.h"
#include "softgpu/memory/heap.h"
#include "src/cuda/driver_types.h"

namespace tandem::soft {

class IpcMemory {
 public:
  using Owner = uint64_t;
  struct Block {
    Range range;
    Owner owner = 0;
    uint64_t number = 0;
    int device = 0;
  };

  // REQUIRES: outlives this.
  explicit IpcMemory(AddressSpace* space) : space_(space) {}

  // The handle of the block around `address`, which is in the heap.
  CUresult Export(const Heap& heap, const CUuuid& device, uint64_t address, CUipcMemHandle* handle);
  // Maps what the handle names, for the device `opener` and its own; the same address again for a
  // handle that is open already.
  CUresult Open(const CUipcMemHandle& handle, Owner owner, int opener,
                const std::function<int(const CUuuid&)>& ordinal_of, uint64_t* address);
  CUresult Close(uint64_t address);
  void FreeAll(Owner owner);
  std::optional<Block> Find(uint64_t address) const;
  // Whether there is a block that another process has opened or may open.
  bool Shares() {
    DropStaleTickets();
    return !tickets_.empty() || !opened_.empty();
  }

 private:
  struct Ticket {
    std::unique_ptr<KeptFd> file;
    const Heap* heap = nullptr;
    uint64_t address = 0;  // of the block, in the heap
  };
  struct Opened {
    Block block;
    uint64_t mapped = 0, mapped_bytes = 0;  // all the pages around it
    int pid = 0;
    uint64_t their_number = 0;
    int times = 1;
  };
  void DropStaleTickets();
  void Drop(std::map<uint64_t, Opened>::iterator opened);

  AddressSpace* const space_;
  std::map<uint64_t, Ticket> tickets_;  // by the block's number
  std::map<uint64_t, Opened> opened_;   // by the block's address
};

}  // namespace tandem::soft
