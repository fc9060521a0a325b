// AddressRegions: device addresses for the program's blocks, cut from a few large reservations that
// are never given back, so that a block keeps its address whether or not it is on the card.
//
// Threading: the owner serialises all calls.
#pragma once

#include <cstdint>
#include <vector>

#include "src/base/ranges.h"
#include "src/cuda/real_driver.h"

namespace tandem::shim {

inline constexpr uint64_t kGranule = uint64_t{2} << 20;  // the driver's unit of mapping

constexpr uint64_t RoundToGranules(uint64_t bytes) {
  return (bytes + kGranule - 1) / kGranule * kGranule;
}

class AddressRegions {
 public:
  // `region_bytes` is the size of a usual reservation; a larger block gets one of its own size.
  AddressRegions(const cuda::RealDriver* real, uint64_t region_bytes)
      : real_(real), region_bytes_(RoundToGranules(region_bytes)) {}

  // REQUIRES: bytes is a multiple of kGranule, not zero.
  CUresult Take(uint64_t bytes, CUdeviceptr* address);
  // REQUIRES: what Take gave, whole.
  void Return(CUdeviceptr address, uint64_t bytes);
  // Whether the address is in one of the reservations, taken or not.
  bool Contain(CUdeviceptr address) const;

 private:
  struct Region {
    CUdeviceptr begin;
    uint64_t bytes;
    RangeAllocator free;

    bool Contains(CUdeviceptr address) const { return address >= begin && address - begin < bytes; }
  };

  const cuda::RealDriver* const real_;
  const uint64_t region_bytes_;
  std::vector<Region> regions_;
};

}  // namespace tandem::shim
