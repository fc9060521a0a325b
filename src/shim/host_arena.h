// HostArena: where chunks lie while they are off the card. Ranges of large anonymous mappings,
// registered with the driver where it lets us, so that copies run at full speed.
//
// The memory is this process's own: no child that it forks has it, and no core dump.
//
// It grows ahead of need: Tend makes as much as may be needed, page by page, so that an eviction
// finds it there. What is needed beyond that is mapped when it is taken.
//
// Threading: the owner serialises all calls. REQUIRES for all: a context is current, if there is
// any.
// Invariant: what is taken is all zero. What was returned is zeroed before it is taken again, by
// Tend as a rule, while nobody waits for it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/host_memory.h"
#include "src/base/ranges.h"
#include "src/base/time.h"
#include "src/cuda/real_driver.h"

namespace tandem::shim {

class HostArena {
 public:
  // A mapping holds several of the largest chunks, and is never smaller than this.
  static constexpr uint64_t kSmallestMapping = uint64_t{32} << 20;
  // What Tend zeroes or populates at a time: a fraction of a millisecond's work.
  static constexpr uint64_t kStep = uint64_t{2} << 20;
  // Of the host.
  using Available = Bytes (*)();

  HostArena(
      const cuda::RealDriver* real, uint64_t largest_chunk,
      Available available = [] { return AvailableHostMemory(); })
      : real_(real),
        largest_chunk_(largest_chunk),
        mapping_bytes_(std::max(kLargestChunks * largest_chunk, kSmallestMapping)),
        available_(available) {}
  ~HostArena();
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  // Room for `bytes`, at most a mapping's; null when the host has no memory for it.
  std::byte* Take(uint64_t bytes);
  // REQUIRES: what Take gave for as many bytes, and nobody reads or writes it any more.
  void Return(std::byte* begin, uint64_t bytes, Instant now);
  // One step of what is to be done while nobody waits: zeroes what was returned, and has `ahead`
  // bytes made in all. Whether there is more of it. Where the host has too little it says so, once,
  // and tries again after the next Trim.
  bool Tend(uint64_t ahead);
  // Whether anything is yet to be zeroed.
  bool HasReturned() const;
  // Gives mappings back that nothing has used for `age`, as far as they are not among the `ahead`
  // bytes.
  void Trim(Instant now, Duration age, uint64_t ahead);
  // Registrations end with their context; the memory and what it holds stay.
  void Unregister();

  size_t mappings() const { return mappings_.size(); }
  uint64_t bytes() const;  // of them

 private:
  struct Mapping {
    uint64_t begin;
    uint64_t bytes;
    bool registered;
    RangeAllocator free;       // all zero
    std::vector<Range> dirty;  // returned, and not zeroed yet
    uint64_t used;             // neither
    Instant unused_since;
  };

  // A mapping that is being made.
  struct Draft {
    uint64_t begin;
    uint64_t bytes;
    uint64_t populated;
  };

  static constexpr uint64_t kLargestChunks = 16;

  static uint64_t Map(uint64_t bytes);
  static bool Fill(uint64_t begin, uint64_t bytes);
  bool MapFor(uint64_t bytes);
  bool MapWhole(uint64_t size);
  void Add(uint64_t begin, uint64_t bytes);
  void Remove(const Mapping& mapping);
  bool GrowSome(uint64_t ahead);
  bool Begin(uint64_t lacking);
  bool Populate();
  std::byte* TakeZeroed(uint64_t bytes);
  bool ZeroSome();

  const cuda::RealDriver* const real_;
  const uint64_t largest_chunk_;
  const uint64_t mapping_bytes_;  // at most
  const Available available_;
  std::vector<Mapping> mappings_;
  std::optional<Draft> draft_;
  bool short_ = false;  // the host had too little, since the last Trim
  bool told_ = false;
};

}  // namespace tandem::shim
