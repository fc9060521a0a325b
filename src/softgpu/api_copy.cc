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

// One side of a 2D copy.
struct Side {
  Rows rows;
  bool device = false;
};

CUresult SideOf(CUmemorytype type, const void* host, CUdeviceptr device, size_t pitch, size_t x,
                size_t y, const CUDA_MEMCPY2D& copy, Side* side) {
  uint64_t base = device;
  side->device = true;
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      base = AddressOf(host);
      side->device = false;
      break;
    case CU_MEMORYTYPE_DEVICE:
      break;
    case CU_MEMORYTYPE_UNIFIED:
      side->device = TheDriver().memory->IsDeviceAddress(device);
      break;
    case CU_MEMORYTYPE_ARRAY:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t row_end = 0, offset = 0;
  if (__builtin_add_overflow(x, copy.WidthInBytes, &row_end) ||
      __builtin_mul_overflow(y, pitch, &offset) || __builtin_add_overflow(offset, x, &offset) ||
      __builtin_add_overflow(base, offset, &offset) || base == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool many = copy.Height > 1 || y > 0;
  if ((many || pitch != 0) && pitch < row_end) return CUDA_ERROR_INVALID_VALUE;
  side->rows = Rows{offset, pitch};
  return CUDA_SUCCESS;
}

CUresult Copy2D(const CUDA_MEMCPY2D* copy, CUstream stream, Blocking blocking) {
  CU_TRY(Ready());
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (copy->WidthInBytes == 0 || copy->Height == 0) return CUDA_SUCCESS;
  Side to, from;
  CU_TRY(SideOf(copy->srcMemoryType, copy->srcHost, copy->srcDevice, copy->srcPitch,
                copy->srcXInBytes, copy->srcY, *copy, &from));
  CU_TRY(SideOf(copy->dstMemoryType, copy->dstHost, copy->dstDevice, copy->dstPitch,
                copy->dstXInBytes, copy->dstY, *copy, &to));
  return SubmitCopy(stream, blocking, Copy{to.rows, from.rows, copy->WidthInBytes, copy->Height},
                    to.device, from.device);
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
