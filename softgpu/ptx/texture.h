// What a texture object, or a surface object, is to the interpreter.
//
// Threading: plain data that never changes while a launch uses it. Without inline functions, like
// code.h: the handlers are compiled more than once.
//
// Invariants: every extent is at least 1 and at most 1 << 28; address, pitch and slice are
// multiples of a texel's size, so that no texel lies in two granules.
#pragma once

#include <cstdint>

namespace tandem::ptx {

enum class TexelFormat : uint8_t { kU8, kU16, kU32, kS8, kS16, kS32, kF16, kF32 };

// What is read beyond the edges. Without normalized coordinates wrap and mirror mean clamp.
enum class AddressMode : uint8_t { kWrap, kClamp, kMirror, kBorder };

struct Texture {
  bool surface = false;  // only for surface loads and stores; else only for fetches
  uint64_t handle = 0;   // the value by which instructions name it; never 0
  uint64_t address = 0;  // device address of texel (0, 0, 0) of layer 0
  uint64_t pitch = 0;    // bytes between rows
  uint64_t slice = 0;    // bytes between slices or layers
  uint32_t extent[3] = {1, 1, 1};
  uint32_t layers = 0;  // 0: it has none
  TexelFormat format = TexelFormat::kU8;
  uint8_t channels = 1;  // 1, 2 or 4
  AddressMode mode[3] = {AddressMode::kClamp, AddressMode::kClamp, AddressMode::kClamp};
  bool linear_filter = false;
  bool normalized = false;  // coordinates: 1 is the far edge
  bool as_integer = false;  // 8 and 16 bits stay integers instead of becoming [0, 1] or [-1, 1]
  float border[4] = {0, 0, 0, 0};
};

}  // namespace tandem::ptx
