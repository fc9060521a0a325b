// How many registers a multiprocessor has and how warps take them: in whole steps, each warp from
// one of the partitions.
//
// Threading: plain functions.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tandem::ptx {

inline constexpr uint32_t kRegisters = 64 << 10;
inline constexpr uint32_t kRegisterPartitions = 4;
inline constexpr uint32_t kRegisterStep = 256;  // of a warp
// Of shared memory, what a block has beside its own: cooperative groups keep barriers there.
inline constexpr uint32_t kReservedSharedBytes = 1 << 10;

// Number of warps of a kernel, with this number of registers a thread, that have them at a time.
inline constexpr uint32_t WarpsThatFit(uint32_t registers) {
  const uint32_t steps = (std::max(registers, 1u) * 32 + kRegisterStep - 1) / kRegisterStep;
  return kRegisters / kRegisterPartitions / (steps * kRegisterStep) * kRegisterPartitions;
}

// The most registers of a thread with which this number of warps fits. REQUIRES: at least one fits.
inline constexpr uint32_t MostRegisters(uint32_t warps) {
  const uint32_t of_partition = (warps + kRegisterPartitions - 1) / kRegisterPartitions;
  const uint32_t of_warp = kRegisters / kRegisterPartitions / of_partition;
  return of_warp / kRegisterStep * kRegisterStep / 32;
}
static_assert(WarpsThatFit(MostRegisters(32)) == 32);
static_assert(WarpsThatFit(MostRegisters(32) + 1) < 32);

}  // namespace tandem::ptx
