// HostArena: where chunks lie while they are off the card. Ranges of large anonymous mappings,
// registered with the driver where it lets us, so that copies run at full speed.
//
// The memory is this process's own and never seen by another; a chunk reads back no more than was
// written for it.
//
// Threading: the owner serialises all calls. REQUIRES for all: a context is current, if there is
// any.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/base/ranges.h"
#include "src/base/time.h"
#include "src/cuda/real_driver.h"

namespace tandem::shim {

class HostArena {
 public:
  // A mapping holds several of the largest chunks, and is never smaller than this.
  static constexpr uint64_t kSmallestMapping = uint64_t{32} << 20;
  HostArena(const cuda::RealDriver* real, uint64_t largest_chunk)
      : real_(real), mapping_bytes_(std::max(kLargestChunks * largest_chunk, kSmallestMapping)) {}
  ~HostArena();
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  // Room for `bytes`, at most a mapping's; null when the host has no memory for it.
  std::byte* Take(uint64_t bytes);
  // REQUIRES: what Take gave for as many bytes.
  void Return(std::byte* begin, uint64_t bytes, Instant now);
  // Gives mappings back that nothing has used for `age`.
  void Trim(Instant now, Duration age);
  // Registrations end with their context; the memory and what it holds stay.
  void Unregister();

  size_t mappings() const { return mappings_.size(); }

 private:
  struct Mapping {
    uint64_t begin;
    bool registered;
    RangeAllocator free;
    uint64_t used;
    Instant unused_since;
  };

  static constexpr uint64_t kLargestChunks = 16;

  bool Add();
  void Remove(const Mapping& mapping);

  const cuda::RealDriver* const real_;
  const uint64_t mapping_bytes_;
  std::vector<Mapping> mappings_;
};

}  // namespace tandem::shim
