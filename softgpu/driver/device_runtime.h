// What programs link from libcudadevrt.a, CUDA's device runtime, whose machine code is of no use
// here: the barrier across a cooperative launch's grid, in PTX. Launches from kernels there are
// none.
//
// Threading: plain functions.
#pragma once

#include <string_view>

namespace tandem::soft {

// Whether a library that a program links is the device runtime.
bool IsDeviceRuntime(std::string_view library);

extern const char kDeviceRuntime[];

}  // namespace tandem::soft
