#include "src/shim/address_regions.h"

#include <algorithm>
#include <iterator>

namespace tandem::shim {

// The smallest range that is large enough: large ranges stay whole.
bool AddressRegions::Cut(Region& region, uint64_t bytes, CUdeviceptr* address) {
  auto best = region.free.end();
  for (auto range = region.free.begin(); range != region.free.end(); ++range) {
    if (range->second < bytes) continue;
    if (best == region.free.end() || range->second < best->second) best = range;
  }
  if (best == region.free.end()) return false;
  const auto [begin, size] = *best;
  region.free.erase(best);
  if (size > bytes) region.free.emplace(begin + bytes, size - bytes);
  *address = begin;
  return true;
}

CUresult AddressRegions::Take(uint64_t bytes, CUdeviceptr* address) {
  for (Region& region : regions_) {
    if (Cut(region, bytes, address)) return CUDA_SUCCESS;
  }
  Region region{0, std::max(bytes, region_bytes_), {}};
  CUresult result = real_->cuMemAddressReserve(&region.begin, region.bytes, kGranule, 0, 0);
  if (result != CUDA_SUCCESS && region.bytes > bytes) {
    region.bytes = bytes;
    result = real_->cuMemAddressReserve(&region.begin, region.bytes, kGranule, 0, 0);
  }
  if (result != CUDA_SUCCESS) return result;
  region.free.emplace(region.begin, region.bytes);
  regions_.push_back(std::move(region));
  Cut(regions_.back(), bytes, address);
  return CUDA_SUCCESS;
}

void AddressRegions::Return(CUdeviceptr address, uint64_t bytes) {
  for (Region& region : regions_) {
    if (address < region.begin || address >= region.begin + region.bytes) continue;
    auto next = region.free.lower_bound(address);
    if (next != region.free.end() && address + bytes == next->first) {
      bytes += next->second;
      next = region.free.erase(next);
    }
    if (next != region.free.begin()) {
      const auto previous = std::prev(next);
      if (previous->first + previous->second == address) {
        previous->second += bytes;
        return;
      }
    }
    region.free.emplace(address, bytes);
    return;
  }
}

}  // namespace tandem::shim
