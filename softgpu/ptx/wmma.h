// A fragment of mma or wmma, as the compiler describes it to the handlers: in a constant, followed
// by the registers. Plain data, as in code.h.
//
// A matrix, B turned over, is cut into tiles of 8 rows. Of a tile, a lane has `run` elements of row
// lane / 4: as many as a register holds, of C and D two. Tiles below each other come first. Where a
// fragment has more elements than that makes, it begins anew. PTX says so for mma and leaves it
// open for wmma.
#pragma once

#include <cstdint>

#include "softgpu/ptx/code.h"

namespace tandem::ptx {

struct Fragment {
  uint8_t rows = 0, columns = 0;  // of B, turned over: the columns and rows
  uint8_t registers = 0;
  uint8_t in_register = 1;  // elements
  uint8_t run = 1;          // elements beside each other that a lane has
  uint8_t bytes = 4;        // of an element
  Type type = Type::kNone;
  uint8_t unused = 0;
};
inline constexpr uint32_t kFragmentWords = sizeof(Fragment) / sizeof(uint32_t);
inline constexpr uint32_t kMaxFragmentRegisters = 8;
inline constexpr int kMaxFactorElements = 32 * 16;  // of A or B

}  // namespace tandem::ptx
