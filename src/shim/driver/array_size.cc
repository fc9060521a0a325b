#include "src/shim/driver/array_size.h"

#include <algorithm>
#include <iterator>

namespace tandem::shim {
namespace {

// No card makes arrays of more elements in one direction. The driver refuses larger ones.
constexpr uint64_t kMostElements = 1 << 18;
constexpr uint64_t kRowAlignment = 512;
constexpr uint64_t kGranularity = 64 << 10;
// CUDA_ARRAY3D_SPARSE and CUDA_ARRAY3D_DEFERRED_MAPPING: memory is given to these later.
constexpr unsigned int kWithoutMemory = 0x40 | 0x80;

uint64_t RoundUp(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// What cuda.h numbers one after the other and what is of one size.
struct Formats {
  unsigned int first, last;
  unsigned int edge;  // of the square blocks that elements come in
  unsigned int bits;  // of a block
  bool each_channel;  // it has this number
};

constexpr Formats kFormats[] = {
    {0x01, 0x01, 1, 8, true},     // unsigned integers of 8 bits
    {0x02, 0x02, 1, 16, true},    // and 16
    {0x03, 0x03, 1, 32, true},    // and 32
    {0x08, 0x08, 1, 8, true},     // signed ones of 8 bits
    {0x09, 0x09, 1, 16, true},    // and 16
    {0x0a, 0x0a, 1, 32, true},    // and 32
    {0x10, 0x10, 1, 16, true},    // half
    {0x20, 0x20, 1, 32, true},    // float
    {0x50, 0x50, 1, 32, false},   // UNORM_INT_101010_2
    {0x91, 0x92, 4, 64, false},   // BC1
    {0x93, 0x96, 4, 128, false},  // BC2, BC3
    {0x97, 0x98, 4, 64, false},   // BC4
    {0x99, 0x9e, 4, 128, false},  // BC5 to BC7
    {0x9f, 0x9f, 1, 24, false},   // P010
    {0xa1, 0xa1, 1, 24, false},   // P016
    {0xa2, 0xa2, 1, 16, false},   // NV16
    {0xa3, 0xa4, 1, 32, false},   // P210, P216
    {0xa5, 0xa5, 1, 16, false},   // YUY2
    {0xa6, 0xa7, 1, 32, false},   // Y210, Y216
    {0xa8, 0xa9, 1, 32, false},   // AYUV, Y410
    {0xb0, 0xb0, 1, 12, false},   // NV12
    {0xb1, 0xb1, 1, 64, false},   // Y416
    {0xb2, 0xb2, 1, 24, false},   // Y444_PLANAR8
    {0xb3, 0xb3, 1, 48, false},   // Y444_PLANAR10
    {0xb4, 0xb4, 1, 24, false},   // YUV444_8bit_SemiPlanar
    {0xb5, 0xb5, 1, 48, false},   // YUV444_16bit_SemiPlanar
    {0xc0, 0xc0, 1, 8, false},    // UNORM_INT8X1
    {0xc1, 0xc1, 1, 16, false},   // X2
    {0xc2, 0xc2, 1, 32, false},   // X4
    {0xc3, 0xc3, 1, 16, false},   // UNORM_INT16X1
    {0xc4, 0xc4, 1, 32, false},   // X2
    {0xc5, 0xc5, 1, 64, false},   // X4
    {0xc6, 0xc6, 1, 8, false},    // SNORM_INT8X1
    {0xc7, 0xc7, 1, 16, false},   // X2
    {0xc8, 0xc8, 1, 32, false},   // X4
    {0xc9, 0xc9, 1, 16, false},   // SNORM_INT16X1
    {0xca, 0xca, 1, 32, false},   // X2
    {0xcb, 0xcb, 1, 64, false},   // X4
};

uint64_t LevelBytes(uint64_t width, uint64_t height, uint64_t depth, const Formats& format,
                    unsigned int channels) {
  const uint64_t bits = uint64_t{format.bits} * (format.each_channel ? channels : 1);
  const uint64_t row = (RoundUp(width, format.edge) / format.edge * bits + 7) / 8;
  return RoundUp(row, kRowAlignment) * (RoundUp(height, format.edge) / format.edge) * depth;
}

}  // namespace

Bytes ArrayBytes(const CUDA_ARRAY3D_DESCRIPTOR& array, unsigned int levels) {
  uint64_t width = array.Width, height = std::max<uint64_t>(array.Height, 1);
  uint64_t depth = std::max<uint64_t>(array.Depth, 1);
  if (std::max({width, height, depth}) > kMostElements) return {};
  if ((array.Flags & kWithoutMemory) != 0 || array.NumChannels > 4) return {};
  const auto* const format = std::find_if(
      std::begin(kFormats), std::end(kFormats),
      [&](const Formats& each) { return each.first <= array.Format && array.Format <= each.last; });
  if (format == std::end(kFormats)) return {};
  const bool layered = (array.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  uint64_t bytes = 0;
  for (unsigned int level = 0; level < std::max(levels, 1u); ++level) {
    bytes += LevelBytes(width, height, depth, *format, array.NumChannels);
    if (std::max({width, height, layered ? 1 : depth}) <= 1) break;  // the driver makes no more
    width = std::max<uint64_t>(width / 2, 1);
    height = std::max<uint64_t>(height / 2, 1);
    if (!layered) depth = std::max<uint64_t>(depth / 2, 1);
  }
  return Bytes(RoundUp(bytes, kGranularity));
}

}  // namespace tandem::shim
