// How the memory of an extent's chunks is mapped where the program wants it, beside the extent's
// own addresses. Swapped chunks are mapped nowhere, and are mapped again when they return.
//
// Threading: the Swapper's lock is held around every call.
#pragma once

#include <cstddef>

#include "src/cuda/real_driver.h"
#include "src/shim/swap/device_memory.h"

namespace tandem::shim {

inline bool SamePlace(const CUmemLocation& a, const CUmemLocation& b) {
  return a.type == b.type && a.id == b.id;
}

// Neighbouring chunks have got memory: maps it at all aliases, or at none if that fails.
CUresult MapAliases(const cuda::RealDriver& real, const Extent& extent, const Chunk* chunks,
                    size_t count);
// A chunk's memory goes.
void UnmapAliases(const cuda::RealDriver& real, const Extent& extent, const Chunk& chunk);

// One more alias, which may not be used yet. An error is the driver's, and nothing has changed.
CUresult AddAlias(const cuda::RealDriver& real, Extent* extent, CUdeviceptr address);
void RemoveAlias(const cuda::RealDriver& real, Extent* extent, CUdeviceptr address);
// Who may use the extent at one of its aliases, beside those not named. On an error of the driver's
// some of it may have changed.
CUresult SetAliasAccess(const cuda::RealDriver& real, Extent* extent, CUdeviceptr address,
                        const CUmemAccessDesc* access, size_t count);

}  // namespace tandem::shim
