// From a program's description of a copy of a row, a rectangle or a box to what it comes to.
#include "softgpu/driver/driver.h"
#include "softgpu/driver/submit.h"

namespace tandem::soft {
namespace {

// One side of it, as the program describes it.
struct CopyEnd {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  CUarray array;
  size_t x, y, z;        // x in bytes
  size_t pitch, height;  // of what lies in host or device memory
};

struct Extent {
  size_t width, height, depth;
};

// What a side comes to.
struct Side {
  Rows rows;
  bool device = false;
  uint32_t element_bytes = 0;  // of an array
};

// base + x + pitch * y + slice * z; false if that is no address.
bool Displace(uint64_t base, const CopyEnd& place, const Rows& rows, uint64_t* address) {
  uint64_t rows_bytes = 0, slices_bytes = 0;
  return base != 0 && !__builtin_mul_overflow(rows.pitch, place.y, &rows_bytes) &&
         !__builtin_mul_overflow(rows.slice, place.z, &slices_bytes) &&
         !__builtin_add_overflow(base, place.x, address) &&
         !__builtin_add_overflow(*address, rows_bytes, address) &&
         !__builtin_add_overflow(*address, slices_bytes, address);
}

bool Inside(size_t begin, size_t count, uint64_t size) {
  return begin <= size && count <= size - begin;
}

CUresult InArray(const CopyEnd& place, const Extent& extent, Side* side) {
  const auto found = TheDriver().arrays.Find(place.array);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const Array& array = *found;
  if (!Inside(place.x, extent.width, array.row_bytes()) ||
      !Inside(place.y, extent.height, array.rows()) ||
      !Inside(place.z, extent.depth, array.slices()) || place.x % array.element_bytes != 0 ||
      extent.width % array.element_bytes != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  side->device = true;
  side->element_bytes = array.element_bytes;
  side->rows = {0, array.pitch, array.slice()};
  Displace(array.address, place, side->rows, &side->rows.address);
  return CUDA_SUCCESS;
}

CUresult SideOf(const CopyEnd& place, const Extent& extent, Side* side) {
  uint64_t base = place.device;
  side->device = true;
  switch (place.type) {
    case CU_MEMORYTYPE_HOST:
      base = AddressOf(place.host);
      side->device = false;
      break;
    case CU_MEMORYTYPE_DEVICE:
      break;
    case CU_MEMORYTYPE_UNIFIED:
      side->device = TheDriver().memory->IsDeviceAddress(place.device);
      break;
    case CU_MEMORYTYPE_ARRAY:
      return InArray(place, extent, side);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t row_end = 0, last_row = 0, slice = 0;
  if (__builtin_add_overflow(place.x, extent.width, &row_end) ||
      __builtin_add_overflow(place.y, extent.height, &last_row)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool slices = extent.depth > 1 || place.z > 0;
  const bool many = slices || extent.height > 1 || place.y > 0;
  if ((many || place.pitch != 0) && place.pitch < row_end) return CUDA_ERROR_INVALID_VALUE;
  if (many && place.pitch > kMaxPitch) return CUDA_ERROR_INVALID_VALUE;
  if (slices &&
      (place.height < last_row || __builtin_mul_overflow(place.pitch, place.height, &slice))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  side->rows = {0, place.pitch, slice};
  return Displace(base, place, side->rows, &side->rows.address) ? CUDA_SUCCESS
                                                                : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult CopyWorkOf(const CUDA_MEMCPY3D& c, CopyWork* work) {
  const Extent extent = {c.WidthInBytes, c.Height, c.Depth};
  Side to, from;
  CU_TRY(SideOf({c.srcMemoryType, c.srcHost, c.srcDevice, c.srcArray, c.srcXInBytes, c.srcY, c.srcZ,
                 c.srcPitch, c.srcHeight},
                extent, &from));
  CU_TRY(SideOf({c.dstMemoryType, c.dstHost, c.dstDevice, c.dstArray, c.dstXInBytes, c.dstY, c.dstZ,
                 c.dstPitch, c.dstHeight},
                extent, &to));
  if (to.element_bytes != 0 && from.element_bytes != 0 && to.element_bytes != from.element_bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *work = CopyWork{c, Copy{to.rows, from.rows, extent.width, extent.height, extent.depth},
                   to.device, from.device};
  return CUDA_SUCCESS;
}

}  // namespace tandem::soft
