// The arguments of a kernel's launch, as far as they may be addresses.
//
// Threading: any thread.
#pragma once

#include <cstdint>
#include <functional>

#include "src/cuda/real_driver.h"

namespace tandem::shim {

// Visits each aligned word of 64 bits of the arguments, those inside of structures, too. Nothing
// where the driver cannot say how large they are (before CUDA 12.4).
void EachArgumentWord(const cuda::RealDriver& real, CUfunction function, void** parameters,
                      void** extra, const std::function<void(uint64_t)>& visit);

}  // namespace tandem::shim
