// Occupancy: how many blocks of a kernel count as resident together on the one multiprocessor.
//
// Threading: plain functions.
#pragma once

#include <cstdint>

#include "softgpu/driver/context.h"

namespace tandem::soft {

// The largest block that a kernel can have.
uint32_t MaxBlockThreads(const ptx::Kernel& kernel);

// Zero if not even one block fits.
uint32_t ResidentBlocks(const Function& function, uint32_t block_threads, uint64_t dynamic_shared);

}  // namespace tandem::soft
