// An estimate of the memory a driver takes for an array. The layout is not documented; it is at
// least the bytes of the elements, in rows and whole pages.
#pragma once

#include "src/base/bytes.h"
#include "src/cuda/texture_types.h"

namespace tandem::shim {

// With this number of levels, each half as large as the one before. Zero where the format is not
// known, where memory is given to it later, and where the driver will refuse.
Bytes ArrayBytes(const CUDA_ARRAY3D_DESCRIPTOR& array, unsigned int levels = 1);

}  // namespace tandem::shim
