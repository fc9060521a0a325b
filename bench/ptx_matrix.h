// The matrix kernels of `./dev bench ptx`, and their inputs: D = A * B, of n rows and columns, A by
// rows and B by columns. n is a multiple of 64.
//
// wmma_TYPE: a warp has 16 x 16 elements of D and loads its factors from global memory. mma_TYPE: a
// block of 4 warps has 64 x 32 elements and brings its factors to shared memory first, which
// mma_f16_async does by cp.async, one step ahead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tandem::bench {

struct Factor {
  std::string name;  // f16
  size_t bytes;      // of an element
  std::string sum;   // f32 or s32
};
const std::vector<Factor>& Factors();

std::string MatrixKernels();

// Writes small whole numbers.
void Encode(const Factor& factor, const std::vector<int>& values, uint8_t* to);

}  // namespace tandem::bench
