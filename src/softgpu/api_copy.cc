// Entry points: copies and fills.
#include "src/cuda/driver_api.h"
#include "src/softgpu/driver.h"
#include "src/softgpu/submit.h"

namespace tandem::soft {
namespace {

Copy Linear(uint64_t to, uint64_t from, size_t bytes) {
  return Copy{{to, bytes}, {from, bytes}, bytes, 1};
}

// Which side is which, is read off the addresses.
CUresult CopyAny(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream,
                 Blocking blocking) {
  CU_TRY(Ready());
  Memory& memory = *TheDriver().memory;
  return SubmitCopy(stream, blocking, Linear(to, from, bytes), memory.IsDeviceAddress(to),
                    memory.IsDeviceAddress(from));
}

// One side of a copy of a rectangle or a box, as the program describes it.
struct Place {
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

// What it comes to.
struct Side {
  Rows rows;
  bool device = false;
  std::shared_ptr<Array> array;
};

// base + x + pitch * y + slice * z; false if that is no address.
bool Displace(uint64_t base, const Place& place, const Rows& rows, uint64_t* address) {
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

CUresult InArray(const Place& place, const Extent& extent, Side* side) {
  side->array = TheDriver().arrays.Find(place.array);
  if (side->array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const Array& array = *side->array;
  if (!Inside(place.x, extent.width, array.row_bytes()) ||
      !Inside(place.y, extent.height, array.rows()) ||
      !Inside(place.z, extent.depth, array.slices()) || place.x % array.element_bytes != 0 ||
      extent.width % array.element_bytes != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  side->device = true;
  side->rows = {0, array.pitch, array.slice()};
  Displace(array.address, place, side->rows, &side->rows.address);
  return CUDA_SUCCESS;
}

CUresult SideOf(const Place& place, const Extent& extent, Side* side) {
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
  if (slices &&
      (place.height < last_row || __builtin_mul_overflow(place.pitch, place.height, &slice))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  side->rows = {0, place.pitch, slice};
  return Displace(base, place, side->rows, &side->rows.address) ? CUDA_SUCCESS
                                                                : CUDA_ERROR_INVALID_VALUE;
}

CUresult CopyBox(const Place& to_place, const Place& from_place, const Extent& extent,
                 CUstream stream, Blocking blocking) {
  if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return CUDA_SUCCESS;
  Side to, from;
  CU_TRY(SideOf(from_place, extent, &from));
  CU_TRY(SideOf(to_place, extent, &to));
  if (to.array && from.array && to.array->element_bytes != from.array->element_bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return SubmitCopy(stream, blocking,
                    Copy{to.rows, from.rows, extent.width, extent.height, extent.depth}, to.device,
                    from.device);
}

CUresult Copy2D(const CUDA_MEMCPY2D* copy, CUstream stream, Blocking blocking) {
  CU_TRY(Ready());
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_MEMCPY2D& c = *copy;
  return CopyBox({c.dstMemoryType, c.dstHost, c.dstDevice, c.dstArray, c.dstXInBytes, c.dstY, 0,
                  c.dstPitch, 0},
                 {c.srcMemoryType, c.srcHost, c.srcDevice, c.srcArray, c.srcXInBytes, c.srcY, 0,
                  c.srcPitch, 0},
                 {c.WidthInBytes, c.Height, 1}, stream, blocking);
}

CUresult Copy3D(const CUDA_MEMCPY3D* copy, CUstream stream, Blocking blocking) {
  CU_TRY(Ready());
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_MEMCPY3D& c = *copy;
  if (c.srcLOD != 0 || c.dstLOD != 0) return CUDA_ERROR_INVALID_VALUE;
  return CopyBox({c.dstMemoryType, c.dstHost, c.dstDevice, c.dstArray, c.dstXInBytes, c.dstY,
                  c.dstZ, c.dstPitch, c.dstHeight},
                 {c.srcMemoryType, c.srcHost, c.srcDevice, c.srcArray, c.srcXInBytes, c.srcY,
                  c.srcZ, c.srcPitch, c.srcHeight},
                 {c.WidthInBytes, c.Height, c.Depth}, stream, blocking);
}

// The two sides of the linear copies.
Place InHost(const void* host) {
  return {CU_MEMORYTYPE_HOST, host, 0, nullptr, 0, 0, 0, 0, 0};
}
Place InDevice(CUdeviceptr device) {
  return {CU_MEMORYTYPE_DEVICE, nullptr, device, nullptr, 0, 0, 0, 0, 0};
}
Place InRow(CUarray array, size_t offset) {
  return {CU_MEMORYTYPE_ARRAY, nullptr, 0, array, offset, 0, 0, 0, 0};
}

CUresult CopyRow(const Place& to, const Place& from, size_t bytes, CUstream stream,
                 Blocking blocking) {
  CU_TRY(Ready());
  return CopyBox(to, from, {bytes, 1, 1}, stream, blocking);
}

CUresult FillLinear(CUdeviceptr pointer, uint32_t value, uint32_t element_bytes, size_t count,
                    CUstream stream) {
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(count, element_bytes, &bytes)) return CUDA_ERROR_INVALID_VALUE;
  return SubmitFill(stream, Fill{{pointer, bytes}, bytes, 1, value, element_bytes});
}

CUresult Fill2D(CUdeviceptr pointer, size_t pitch, uint32_t value, uint32_t element_bytes,
                size_t width, size_t height, CUstream stream) {
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(width, element_bytes, &bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (height > 1 && (pitch < bytes || pitch % element_bytes != 0)) return CUDA_ERROR_INVALID_VALUE;
  return SubmitFill(stream, Fill{{pointer, pitch}, bytes, height, value, element_bytes});
}

}  // namespace
}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) noexcept {
  return CopyAny(to, from, bytes, nullptr, Blocking::kYes);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) noexcept {
  return CopyAny(to, from, bytes, stream, Blocking::kNo);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) noexcept {
  return SubmitCopy(nullptr, Blocking::kYes, Linear(to, AddressOf(from), bytes), true, false);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes,
                              CUstream stream) noexcept {
  return SubmitCopy(stream, Blocking::kNo, Linear(to, AddressOf(from), bytes), true, false);
}

CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) noexcept {
  return SubmitCopy(nullptr, Blocking::kYes, Linear(AddressOf(to), from, bytes), false, true);
}

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) noexcept {
  return SubmitCopy(stream, Blocking::kNo, Linear(AddressOf(to), from, bytes), false, true);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) noexcept {
  return SubmitCopy(nullptr, Blocking::kYes, Linear(to, from, bytes), true, true);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                              CUstream stream) noexcept {
  return SubmitCopy(stream, Blocking::kNo, Linear(to, from, bytes), true, true);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* copy) noexcept {
  return Copy2D(copy, nullptr, Blocking::kYes);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* copy) noexcept {
  return Copy2D(copy, nullptr, Blocking::kYes);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream) noexcept {
  return Copy2D(copy, stream, Blocking::kNo);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* copy) noexcept {
  return Copy3D(copy, nullptr, Blocking::kYes);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* copy, CUstream stream) noexcept {
  return Copy3D(copy, stream, Blocking::kNo);
}

CUresult cuMemcpyHtoA_v2(CUarray to, size_t to_offset, const void* from, size_t bytes) noexcept {
  return CopyRow(InRow(to, to_offset), InHost(from), bytes, nullptr, Blocking::kYes);
}

CUresult cuMemcpyHtoAAsync_v2(CUarray to, size_t to_offset, const void* from, size_t bytes,
                              CUstream stream) noexcept {
  return CopyRow(InRow(to, to_offset), InHost(from), bytes, stream, Blocking::kNo);
}

CUresult cuMemcpyAtoH_v2(void* to, CUarray from, size_t from_offset, size_t bytes) noexcept {
  return CopyRow(InHost(to), InRow(from, from_offset), bytes, nullptr, Blocking::kYes);
}

CUresult cuMemcpyAtoHAsync_v2(void* to, CUarray from, size_t from_offset, size_t bytes,
                              CUstream stream) noexcept {
  return CopyRow(InHost(to), InRow(from, from_offset), bytes, stream, Blocking::kNo);
}

CUresult cuMemcpyDtoA_v2(CUarray to, size_t to_offset, CUdeviceptr from, size_t bytes) noexcept {
  return CopyRow(InRow(to, to_offset), InDevice(from), bytes, nullptr, Blocking::kYes);
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t from_offset, size_t bytes) noexcept {
  return CopyRow(InDevice(to), InRow(from, from_offset), bytes, nullptr, Blocking::kYes);
}

CUresult cuMemcpyAtoA_v2(CUarray to, size_t to_offset, CUarray from, size_t from_offset,
                         size_t bytes) noexcept {
  return CopyRow(InRow(to, to_offset), InRow(from, from_offset), bytes, nullptr, Blocking::kYes);
}

CUresult cuMemsetD8_v2(CUdeviceptr pointer, unsigned char value, size_t count) noexcept {
  return FillLinear(pointer, value, 1, count, nullptr);
}

CUresult cuMemsetD16_v2(CUdeviceptr pointer, unsigned short value, size_t count) noexcept {
  return FillLinear(pointer, value, 2, count, nullptr);
}

CUresult cuMemsetD32_v2(CUdeviceptr pointer, unsigned int value, size_t count) noexcept {
  return FillLinear(pointer, value, 4, count, nullptr);
}

CUresult cuMemsetD2D8_v2(CUdeviceptr pointer, size_t pitch, unsigned char value, size_t width,
                         size_t height) noexcept {
  return Fill2D(pointer, pitch, value, 1, width, height, nullptr);
}

CUresult cuMemsetD2D16_v2(CUdeviceptr pointer, size_t pitch, unsigned short value, size_t width,
                          size_t height) noexcept {
  return Fill2D(pointer, pitch, value, 2, width, height, nullptr);
}

CUresult cuMemsetD2D32_v2(CUdeviceptr pointer, size_t pitch, unsigned int value, size_t width,
                          size_t height) noexcept {
  return Fill2D(pointer, pitch, value, 4, width, height, nullptr);
}

CUresult cuMemsetD8Async(CUdeviceptr pointer, unsigned char value, size_t count,
                         CUstream stream) noexcept {
  return FillLinear(pointer, value, 1, count, stream);
}

CUresult cuMemsetD16Async(CUdeviceptr pointer, unsigned short value, size_t count,
                          CUstream stream) noexcept {
  return FillLinear(pointer, value, 2, count, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr pointer, unsigned int value, size_t count,
                          CUstream stream) noexcept {
  return FillLinear(pointer, value, 4, count, stream);
}

CUresult cuMemsetD2D8Async(CUdeviceptr pointer, size_t pitch, unsigned char value, size_t width,
                           size_t height, CUstream stream) noexcept {
  return Fill2D(pointer, pitch, value, 1, width, height, stream);
}

CUresult cuMemsetD2D16Async(CUdeviceptr pointer, size_t pitch, unsigned short value, size_t width,
                            size_t height, CUstream stream) noexcept {
  return Fill2D(pointer, pitch, value, 2, width, height, stream);
}

CUresult cuMemsetD2D32Async(CUdeviceptr pointer, size_t pitch, unsigned int value, size_t width,
                            size_t height, CUstream stream) noexcept {
  return Fill2D(pointer, pitch, value, 4, width, height, stream);
}
