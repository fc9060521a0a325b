// Fat binaries: containers of one program as machine code and as PTX for several architectures.
//
// Threading: plain functions.
#pragma once

#include <string>

#include "src/cuda/driver_types.h"

namespace tandem::soft {

// Whether a fat binary begins here, or the wrapper that points to one. Reads as far as bytes agree.
bool IsFatBinary(const void* image);

// The PTX in it for the newest architecture up to `capability` (major * 10 + minor). Where there is
// none that can be read, CUDA_ERROR_NO_BINARY_FOR_GPU and the reason in *log.
// REQUIRES: IsFatBinary(image), and as many bytes as its header says.
CUresult PtxOfFatBinary(const void* image, int capability, std::string* ptx, std::string* log);

}  // namespace tandem::soft
