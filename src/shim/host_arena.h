// HostArena: where chunks lie while they are off the card. Slots of one size in large anonymous
// mappings, registered with the driver where it lets us, so that copies run at full speed.
//
// The memory is this process's own; what a slot held before is overwritten or zeroed when it is
// taken again.
//
// Threading: the owner serialises all calls. REQUIRES for all: a context is current, if there is
// any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/base/time.h"
#include "src/cuda/real_driver.h"

namespace tandem::shim {

class HostArena {
 public:
  HostArena(const cuda::RealDriver* real, uint64_t slot_bytes)
      : real_(real), slot_bytes_(slot_bytes) {}
  ~HostArena();
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  // Room for `bytes`, at most a slot; null when the host has no memory for it.
  std::byte* Take(uint64_t bytes);
  void Return(std::byte* slot, Instant now);
  // Gives mappings back that nothing has used for `age`.
  void Trim(Instant now, Duration age);
  // Registrations end with their context; the memory and what it holds stay.
  void Unregister();

  size_t mappings() const { return mappings_.size(); }

 private:
  struct Mapping {
    std::byte* begin;
    bool registered;
    std::vector<uint32_t> free;
    std::vector<bool> dirty;  // slots that have held something
    Instant unused_since;
  };

  static constexpr uint32_t kSlots = 16;  // of a mapping

  bool Add();
  void Remove(Mapping& mapping);

  const cuda::RealDriver* const real_;
  const uint64_t slot_bytes_;
  std::vector<Mapping> mappings_;
};

}  // namespace tandem::shim
