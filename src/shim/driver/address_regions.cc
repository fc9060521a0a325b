#include "src/shim/driver/address_regions.h"

#include <algorithm>

namespace tandem::shim {

CUresult AddressRegions::Take(uint64_t bytes, CUdeviceptr* address) {
  for (Region& region : regions_) {
    if (const auto found = region.free.Take(bytes, kGranule)) {
      *address = *found;
      return CUDA_SUCCESS;
    }
  }
  CUdeviceptr begin = 0;
  uint64_t size = std::max(bytes, region_bytes_);
  CUresult result = real_->cuMemAddressReserve(&begin, size, kGranule, 0, 0);
  if (result != CUDA_SUCCESS && size > bytes) {
    size = bytes;
    result = real_->cuMemAddressReserve(&begin, size, kGranule, 0, 0);
  }
  if (result != CUDA_SUCCESS) return result;
  regions_.push_back(Region{begin, size, RangeAllocator(begin, size)});
  *address = *regions_.back().free.Take(bytes, kGranule);
  return CUDA_SUCCESS;
}

void AddressRegions::Return(CUdeviceptr address, uint64_t bytes) {
  for (Region& region : regions_) {
    if (!region.Contains(address)) continue;
    // Refused, it would mean that they are in use after all: then they stay so.
    (void)region.free.Give(address, bytes);
    return;
  }
}

bool AddressRegions::Contain(CUdeviceptr address) const {
  return std::any_of(regions_.begin(), regions_.end(),
                     [&](const Region& region) { return region.Contains(address); });
}

}  // namespace tandem::shim
