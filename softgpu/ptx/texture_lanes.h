// What the handlers of textures and surfaces share.
#pragma once

#include "softgpu/ptx/memory_lanes.h"
#include "softgpu/ptx/texture.h"

namespace tandem::ptx::TANDEM_PTX_PATH {
namespace {

inline const Texture* FindTexture(const WarpContext& w, uint64_t handle) {
  const uint64_t slot = (handle & 0xfffff) - 1;
  if (slot >= w.texture_count || w.textures[slot].handle != handle) return nullptr;
  return &w.textures[slot];
}

// The reverse of PackRows in lower_texture.cc.
inline uint32_t RowOfTexture(const Instruction& in, int index) {
  return (static_cast<uint32_t>(in.imm >> (21 * index)) & 0x1fffff) << 7;
}

inline uint32_t ChannelBytes(TexelFormat format) {
  switch (format) {
    case TexelFormat::kU8:
    case TexelFormat::kS8:
      return 1;
    case TexelFormat::kU16:
    case TexelFormat::kS16:
    case TexelFormat::kF16:
      return 2;
    default:
      return 4;
  }
}

}  // namespace
}  // namespace tandem::ptx::TANDEM_PTX_PATH
