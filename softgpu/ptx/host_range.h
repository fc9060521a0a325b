// Memory of the host that a device may use beside its own.
//
// Threading: plain functions.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem::ptx {

// From `begin` to before `end`.
struct HostRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  bool writable = false;
};

// Whether all of [address, address + bytes) is in one of the ranges, which are sorted, and may be
// used so. Null: there are none.
bool InHostRange(const std::vector<HostRange>* ranges, uint64_t address, uint64_t bytes,
                 bool write);

}  // namespace tandem::ptx
