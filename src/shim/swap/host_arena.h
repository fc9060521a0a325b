// HostArena: where chunks lie while they are off the card. Ranges of large anonymous mappings,
// registered with the driver where it lets us, so that copies run at full speed.
//
// The memory is this process's own: no child that it forks has it, and no core dump.
//
// It grows ahead of need: PrepareSome makes as much as may be needed, page by page, so that an
// eviction finds it there. Further memory is mapped when it is taken. Where the host's memory has
// no room, the arena takes ranges of a file: last, and not registered.
//
// Threading: the owner serialises all calls. REQUIRES for all: a context is current, if there is
// any.
// Invariant: taken memory is all zero, but for TakeToWrite. Returned memory is zeroed before it is
// taken again. PrepareSome mostly does that, before a thread needs the memory.
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
#include "src/shim/os/host_share.h"
#include "src/shim/os/populate.h"
#include "src/shim/swap/spill_file.h"

namespace tandem::shim {

class HostArena {
 public:
  // A mapping holds as many of the largest chunks as fit into the first, 1 to 16, and is never
  // smaller than the second. Registering blocks the program's launches: on an H200 for 2.5 ms for
  // each 64 MiB, and for 39 ms for a GiB.
  static constexpr uint64_t kUsualMapping = uint64_t{64} << 20;
  static constexpr uint64_t kSmallestMapping = uint64_t{32} << 20;
  // What PrepareSome zeroes at a time, or populates where it has one thread: a fraction of a
  // millisecond's work.
  static constexpr uint64_t kStep = uint64_t{2} << 20;
  // What each of several threads populates at a time: starting them should not count.
  static constexpr uint64_t kStepOfThread = uint64_t{2} << 20;
  // Of the host.
  using Available = Bytes (*)();

  HostArena(
      const cuda::RealDriver* real, uint64_t largest_chunk,
      Available available = [] { return AvailableHostMemory(); },
      unsigned int threads = PopulateThreads())
      : real_(real),
        largest_chunk_(largest_chunk),
        mapping_bytes_(std::max(
            std::clamp(kUsualMapping / largest_chunk, uint64_t{1}, kMostChunks) * largest_chunk,
            kSmallestMapping)),
        available_(available),
        threads_(threads) {}
  ~HostArena();
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  // Room for `bytes`, at most a mapping's; null when the host has no memory for it.
  std::byte* Take(uint64_t bytes);
  // The same without mapping more, for who writes all of it: it holds anything.
  std::byte* TakeToWrite(uint64_t bytes);
  // The same without any work: null where none is made and zeroed.
  std::byte* TakeMade(uint64_t bytes);
  // REQUIRES: what a Take gave for as many bytes, and no thread reads or writes it any more.
  void Return(std::byte* begin, uint64_t bytes, Instant now);
  // One step of the work that no caller waits for: zeroes returned memory, and prepares as much as
  // `ahead` says. Whether there is more of it. Where the host has too little it says so, once, and
  // tries again after the next Trim.
  bool PrepareSome(const HostShare& ahead);
  // Whether anything is yet to be zeroed.
  bool HasReturned() const;
  // Gives mappings back that nothing has used for `age`, as far as they are not among what is
  // `ahead`.
  void Trim(Instant now, Duration age, const HostShare& ahead);
  // Registrations end with their context; the memory and what it holds stay.
  void Unregister();
  SpillFile& file() { return file_; }
  // REQUIRES: what Take gave.
  bool InFile(const std::byte* begin) const;

  size_t mappings() const { return mappings_.size(); }
  uint64_t bytes() const { return made_.total().count; }  // of them
  HostShare made() const { return made_; }
  uint64_t used() const;  // taken and not returned
  uint64_t held() const;  // of the mappings where anything is used
  uint64_t mapping_bytes() const { return mapping_bytes_; }

 private:
  struct Mapping {
    uint64_t begin;
    uint64_t bytes;
    bool registered;
    std::optional<uint64_t> offset;  // of the file
    RangeAllocator free;             // all zero
    std::vector<Range> dirty;        // returned, and not zeroed yet
    uint64_t used;                   // neither
    Instant unused_since;
  };

  // A mapping that is being made.
  struct Draft {
    uint64_t begin;
    uint64_t bytes;
    uint64_t populated;
  };

  static constexpr uint64_t kMostChunks = 16;

  static uint64_t Map(uint64_t bytes);
  bool MapFor(uint64_t bytes);
  bool MapMemory(uint64_t size);
  bool MapFile(uint64_t size);
  void Add(uint64_t begin, uint64_t bytes);
  void Remove(const Mapping& mapping);
  bool GrowSome();
  uint64_t PieceOf(uint64_t lacking) const;
  bool Begin(uint64_t lacking);
  bool PopulateDraft();
  void DropDraft();
  bool ZeroSome();

  const cuda::RealDriver* const real_;
  const uint64_t largest_chunk_;
  const uint64_t mapping_bytes_;  // at most
  const Available available_;
  const unsigned int threads_;
  SpillFile file_;
  HostShare ahead_;
  HostShare made_;                 // of mappings_
  std::vector<Mapping> mappings_;  // those of the file last
  std::optional<Draft> draft_;
  bool short_ = false;  // the host had too little, since the last Trim
  bool told_ = false;
};

}  // namespace tandem::shim
