#include "softgpu/ptx/host_range.h"

#include <algorithm>
#include <iterator>

namespace tandem::ptx {

bool InHostRange(const std::vector<HostRange>* ranges, uint64_t address, uint64_t bytes,
                 bool write) {
  if (ranges == nullptr) return false;
  const auto after = std::ranges::upper_bound(*ranges, address, {}, &HostRange::begin);
  if (after == ranges->begin()) return false;
  const HostRange& range = *std::prev(after);
  return address < range.end && bytes <= range.end - address && (range.writable || !write);
}

}  // namespace tandem::ptx
