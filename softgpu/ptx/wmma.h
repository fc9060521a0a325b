// A fragment of wmma, as the compiler describes it to the handlers: in a constant, followed by the
// registers. Plain data, as in code.h.
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

}  // namespace tandem::ptx
