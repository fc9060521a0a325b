// Populate: pages for memory of this process, made by several threads at once.
//
// The kernel zeroes each page when it is first touched. One thread does so more slowly than the bus
// copies, so an eviction into new memory would wait for it.
#pragma once

#include <cstdint>

namespace tandem::shim {

// Half of the processors that this process may use, at least 1 and at most 8.
unsigned int PopulateThreads();

// Whether the kernel had memory for all pages of [begin, begin + bytes). Kernels before 5.14 cannot
// populate: true, and the first touch does it. Uses `threads` threads, the caller among them, for
// more than a few MiB; fewer where the process can start no more. All end before it returns.
// REQUIRES: private anonymous memory, aligned to pages.
bool Populate(uint64_t begin, uint64_t bytes, unsigned int threads);

}  // namespace tandem::shim
