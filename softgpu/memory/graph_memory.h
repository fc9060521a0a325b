// GraphMemory: what the allocation nodes of graphs allocate. A block has its address from the time
// its node is made, and VRAM from a launch on. It is allocated from a launch with its node to
// whatever frees it: a node of the same or another graph, cuMemFreeAsync or cuMemFree.
//
// Threading: the owner serialises all calls. The scheduler is asked under the owner's lock.
//
// Invariants:
// 1. A block that is allocated has VRAM; one that is not keeps its VRAM until it is trimmed or
//    memory is short.
// 2. A block goes when no node knows it and nothing uses it any more.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "softgpu/engine/scheduler.h"
#include "softgpu/memory/device_vram.h"
#include "src/base/ranges.h"

namespace tandem::soft {

class GraphMemory {
 public:
  struct Block {
    DeviceVram* device = nullptr;
    uint64_t owner = 0;  // context
    Range range;         // as asked for
    Reach reach;
    uint64_t number = 0;
    // The rest is guarded by the owner's lock.
    bool allocated = false;           // in the order of submission
    bool freeing = false;             // between BeginFree() and Free()
    std::optional<Dependency> freed;  // by what it was last freed
    std::vector<Range> pieces;        // its VRAM
  };
  // The attributes of a device: the bytes in use by nodes or programs, and all bytes with VRAM. The
  // peaks begin anew when they are set to zero.
  struct Counts {
    uint64_t used = 0, used_high = 0;
    uint64_t reserved = 0, reserved_high = 0;
  };

  // REQUIRES: both outlive this.
  GraphMemory(AddressSpace* space, Scheduler* scheduler) : space_(space), scheduler_(scheduler) {}

  // An address; null if there is none left.
  std::shared_ptr<Block> Add(DeviceVram* device, uint64_t owner, uint64_t bytes,
                             const Reach& reach);
  // Null if the address is in none.
  std::shared_ptr<Block> Find(uint64_t address) const;
  // Gives it VRAM, if it has none; false if there is none.
  bool Back(Block& block);
  void Allocate(Block& block);
  // Not allocated any more, but in use until Free() says how long. False if it was not allocated.
  bool BeginFree(Block& block);
  void Free(Block& block, std::optional<Dependency> freed);
  // Gives back the VRAM of blocks that nothing uses.
  void Trim(const DeviceVram* device);
  // A context's end.
  void FreeAll(uint64_t owner);

  Counts CountsOf(const DeviceVram* device);
  void ResetUsedHigh(const DeviceVram* device) { peaks_[device].used_high = 0; }
  void ResetReservedHigh(const DeviceVram* device) { peaks_[device].reserved_high = 0; }

 private:
  static bool KnownToNode(const std::shared_ptr<Block>& block);
  bool InUse(const Block& block) const;
  void Unback(Block& block);
  void DropUnknown();
  // What there is now; *peaks_ is brought up to it.
  void Note(const DeviceVram* device);

  AddressSpace* const space_;
  Scheduler* const scheduler_;
  std::map<uint64_t, std::shared_ptr<Block>> blocks_;  // by address
  std::map<const DeviceVram*, Counts> peaks_;
};

}  // namespace tandem::soft
