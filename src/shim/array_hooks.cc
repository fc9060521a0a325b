// Hooks of driver_api.def's OWN rows for arrays: memory that stays on the card and is counted.
#include <algorithm>
#include <optional>

#include "src/cuda/texture_types.h"
#include "src/shim/process.h"

namespace tandem::shim {
namespace {

// No card makes arrays of more elements in one direction. What is beyond is the driver's to refuse.
constexpr uint64_t kMostElements = 1 << 18;
constexpr uint64_t kRowAlignment = 512;
constexpr uint64_t kGranularity = 64 << 10;
// CUDA_ARRAY3D_SPARSE and CUDA_ARRAY3D_DEFERRED_MAPPING: memory is given to these later.
constexpr unsigned int kWithoutMemory = 0x40 | 0x80;

uint64_t RoundUp(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

uint64_t ChannelBytes(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
  }
  return 0;
}

// About what the driver takes for it, whose layout nobody tells; zero where it is not known, or
// where the driver will refuse.
Bytes SizeOf(const CUDA_ARRAY3D_DESCRIPTOR& array) {
  const uint64_t rows = std::max<uint64_t>(array.Height, 1);
  const uint64_t slices = std::max<uint64_t>(array.Depth, 1);
  if (std::max({uint64_t{array.Width}, rows, slices}) > kMostElements) return {};
  if ((array.Flags & kWithoutMemory) != 0 || array.NumChannels > 4) return {};
  const uint64_t row = array.Width * array.NumChannels * ChannelBytes(array.Format);
  return Bytes(RoundUp(RoundUp(row, kRowAlignment) * rows * slices, kGranularity));
}

template <typename Create>
CUresult CreateArray(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR& descriptor, Create create) {
  CUcontext context = nullptr;
  Guest* const guest = GuestOfCurrentContext(&context);
  const Bytes bytes = array == nullptr ? Bytes() : SizeOf(descriptor);
  if (guest == nullptr || bytes == Bytes()) return create();
  if (const CUresult health = guest->Health(context); IsSticky(health)) return health;
  FixedMemory& fixed = guest->fixed();
  const bool room = fixed.Reserve(bytes) || (guest->pools().GiveWay(true) && fixed.Reserve(bytes));
  if (!room) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = create();
  if (result == CUDA_SUCCESS) {
    fixed.Put(*array, {context, bytes});
  } else {
    fixed.GiveBack(bytes);
  }
  return result;
}

}  // namespace
}  // namespace tandem::shim

using namespace tandem;
using namespace tandem::shim;

extern "C" {

CUresult cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* descriptor) noexcept {
  const auto create = [&] { return Call(Real().cuArrayCreate_v2, array, descriptor); };
  if (descriptor == nullptr) return create();
  const CUDA_ARRAY3D_DESCRIPTOR plane = {descriptor->Width,  descriptor->Height,      0,
                                         descriptor->Format, descriptor->NumChannels, 0};
  return CreateArray(array, plane, create);
}

CUresult cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor) noexcept {
  const auto create = [&] { return Call(Real().cuArray3DCreate_v2, array, descriptor); };
  return descriptor == nullptr ? create() : CreateArray(array, *descriptor, create);
}

CUresult cuArrayDestroy(CUarray array) noexcept {
  FixedMemory::Piece piece;
  Guest* const guest = FindGuest([&](Guest* each) {
    piece = each->fixed().Take(array);
    return piece.bytes > Bytes();
  });
  const CUresult result = Call(Real().cuArrayDestroy, array);
  if (guest == nullptr) return result;
  if (result == CUDA_SUCCESS) {
    guest->fixed().GiveBack(piece.bytes);
  } else {
    guest->fixed().Put(array, piece);
  }
  return result;
}

}  // extern "C"
