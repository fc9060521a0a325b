// Extent: a range of device addresses of its own, and what backs it. device_memory.h says what
// extents, pages and chunks are, and which lock guards what.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "src/cuda/real_driver.h"
#include "src/shim/swap/fingerprint.h"

namespace tandem::shim {

struct Chunk {
  // Arriving: memory of the card is there, its bytes are not yet. Cold: it is in memory of the host
  // that is mapped at its address; kernels reach it there (docs/decisions/0016).
  enum class State : uint8_t { kAway, kArriving, kHere, kCold };

  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  State state = State::kAway;               // table lock and swap lock to change
  CUmemGenericAllocationHandle handle = 0;  // swap lock
  bool exposed = false;                     // swap lock: work may have written to it
  // Swap lock. Its copy in host memory; of an exposed one as it was when it was exposed.
  std::byte* host = nullptr;
  // ---- swap lock; of clean_check.h
  std::optional<Fingerprint> print;  // of the host copy
  uint8_t modified = 0;              // found so, so often in a row
  uint8_t unexamined = 0;            // departures at which it is not to be looked at

  bool mapped() const { return state != State::kAway; }
  bool resident() const { return state == State::kArriving || state == State::kHere; }
  bool missing() const { return state == State::kAway || state == State::kArriving; }
};

// Another address at which the program has mapped a whole extent, and who may use it there.
struct Alias {
  CUdeviceptr address = 0;
  std::vector<CUmemAccessDesc> access;
};

// What a slab page is cut into.
struct PageSlots {
  uint64_t bytes = 0;           // of each; 0: it is no page, but one block
  std::vector<uint32_t> freed;  // that were taken before
  uint32_t fresh = 0;           // and those that never were: the last ones, this number

  bool any() const { return fresh != 0 || !freed.empty(); }
};

struct Extent {
  CUdeviceptr address = 0;
  uint64_t bytes = 0;
  CUcontext context = nullptr;
  std::vector<Chunk> chunks;
  bool dead = false;   // all of it is released; table lock
  bool lost = false;   // its context is broken; table lock and swap lock to change
  bool named = false;  // by a launch since the last step of time; table lock
  uint32_t heat = 0;   // the more the more often it was; table lock
  PageSlots slots;     // of a slab page (slab_pages.h)
  uint32_t live = 1;   // blocks in it, retired ones included, and who holds it

  // ---- Of a handle of the program's (vmm_memory.h), which has no block.
  std::vector<Alias> aliases;  // swap lock
  std::optional<CUmemAllocationProp> properties;

  bool pinned = false;  // stays on the card, and is not counted here; table lock and swap lock
  bool shared = false;  // other processes may have it (memory_offers.h); so it is pinned
};

// The memory of a block: a slot of a page, or a whole extent.
struct BlockMemory {
  Extent* extent;
  uint32_t slot;

  CUdeviceptr address() const { return extent->address + slot * extent->slots.bytes; }
  uint64_t bytes() const { return extent->slots.bytes != 0 ? extent->slots.bytes : extent->bytes; }
};

}  // namespace tandem::shim
