// Entry points: copies and fills.
#include "softgpu/driver/driver.h"
#include "softgpu/driver/submit.h"
#include "src/cuda/driver_api.h"

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

// A copy of no bytes is none.
CUresult CopyBox(const CUDA_MEMCPY3D& box, CUstream stream, Blocking blocking) {
  CU_TRY(Ready());
  if (box.WidthInBytes == 0 || box.Height == 0 || box.Depth == 0) return CUDA_SUCCESS;
  CopyWork work;
  CU_TRY(CopyWorkOf(box, &work));
  return SubmitCopy(stream, blocking, work);
}

CUresult Copy2D(const CUDA_MEMCPY2D* copy, CUstream stream, Blocking blocking) {
  CU_TRY(Ready());
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEMCPY3D box = {};
  box.srcXInBytes = copy->srcXInBytes;
  box.srcY = copy->srcY;
  box.srcMemoryType = copy->srcMemoryType;
  box.srcHost = copy->srcHost;
  box.srcDevice = copy->srcDevice;
  box.srcArray = copy->srcArray;
  box.srcPitch = copy->srcPitch;
  box.dstXInBytes = copy->dstXInBytes;
  box.dstY = copy->dstY;
  box.dstMemoryType = copy->dstMemoryType;
  box.dstHost = copy->dstHost;
  box.dstDevice = copy->dstDevice;
  box.dstArray = copy->dstArray;
  box.dstPitch = copy->dstPitch;
  box.WidthInBytes = copy->WidthInBytes;
  box.Height = copy->Height;
  box.Depth = 1;
  return CopyBox(box, stream, blocking);
}

CUresult Copy3D(const CUDA_MEMCPY3D* copy, CUstream stream, Blocking blocking) {
  CU_TRY(Ready());
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (copy->srcLOD != 0 || copy->dstLOD != 0) return CUDA_ERROR_INVALID_VALUE;
  return CopyBox(*copy, stream, blocking);
}

// The sides of the copies of one row.
class RowCopy {
 public:
  explicit RowCopy(size_t bytes) {
    box_.WidthInBytes = bytes;
    box_.Height = box_.Depth = 1;
  }
  RowCopy& FromHost(const void* host) {
    box_.srcMemoryType = CU_MEMORYTYPE_HOST;
    box_.srcHost = host;
    return *this;
  }
  RowCopy& FromDevice(CUdeviceptr device) {
    box_.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    box_.srcDevice = device;
    return *this;
  }
  RowCopy& FromArray(CUarray array, size_t offset) {
    box_.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    box_.srcArray = array;
    box_.srcXInBytes = offset;
    return *this;
  }
  RowCopy& ToHost(void* host) {
    box_.dstMemoryType = CU_MEMORYTYPE_HOST;
    box_.dstHost = host;
    return *this;
  }
  RowCopy& ToDevice(CUdeviceptr device) {
    box_.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    box_.dstDevice = device;
    return *this;
  }
  RowCopy& ToArray(CUarray array, size_t offset) {
    box_.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    box_.dstArray = array;
    box_.dstXInBytes = offset;
    return *this;
  }
  CUresult Now() const { return CopyBox(box_, nullptr, Blocking::kYes); }
  CUresult In(CUstream stream) const { return CopyBox(box_, stream, Blocking::kNo); }

 private:
  CUDA_MEMCPY3D box_ = {};
};

CUresult FillLinear(CUdeviceptr pointer, uint32_t value, uint32_t element_bytes, size_t count,
                    CUstream stream, Blocking blocking) {
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(count, element_bytes, &bytes)) return CUDA_ERROR_INVALID_VALUE;
  return SubmitFill(stream, blocking, Fill{{pointer, bytes}, bytes, 1, value, element_bytes});
}

CUresult Fill2D(CUdeviceptr pointer, size_t pitch, uint32_t value, uint32_t element_bytes,
                size_t width, size_t height, CUstream stream, Blocking blocking) {
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(width, element_bytes, &bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (height > 1 && (pitch < bytes || pitch % element_bytes != 0)) return CUDA_ERROR_INVALID_VALUE;
  return SubmitFill(stream, blocking, Fill{{pointer, pitch}, bytes, height, value, element_bytes});
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
  return RowCopy(bytes).FromHost(from).ToArray(to, to_offset).Now();
}

CUresult cuMemcpyHtoAAsync_v2(CUarray to, size_t to_offset, const void* from, size_t bytes,
                              CUstream stream) noexcept {
  return RowCopy(bytes).FromHost(from).ToArray(to, to_offset).In(stream);
}

CUresult cuMemcpyAtoH_v2(void* to, CUarray from, size_t from_offset, size_t bytes) noexcept {
  return RowCopy(bytes).FromArray(from, from_offset).ToHost(to).Now();
}

CUresult cuMemcpyAtoHAsync_v2(void* to, CUarray from, size_t from_offset, size_t bytes,
                              CUstream stream) noexcept {
  return RowCopy(bytes).FromArray(from, from_offset).ToHost(to).In(stream);
}

CUresult cuMemcpyDtoA_v2(CUarray to, size_t to_offset, CUdeviceptr from, size_t bytes) noexcept {
  return RowCopy(bytes).FromDevice(from).ToArray(to, to_offset).Now();
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t from_offset, size_t bytes) noexcept {
  return RowCopy(bytes).FromArray(from, from_offset).ToDevice(to).Now();
}

CUresult cuMemcpyAtoA_v2(CUarray to, size_t to_offset, CUarray from, size_t from_offset,
                         size_t bytes) noexcept {
  return RowCopy(bytes).FromArray(from, from_offset).ToArray(to, to_offset).Now();
}

CUresult cuMemsetD8_v2(CUdeviceptr pointer, unsigned char value, size_t count) noexcept {
  return FillLinear(pointer, value, 1, count, nullptr, Blocking::kYes);
}

CUresult cuMemsetD16_v2(CUdeviceptr pointer, unsigned short value, size_t count) noexcept {
  return FillLinear(pointer, value, 2, count, nullptr, Blocking::kYes);
}

CUresult cuMemsetD32_v2(CUdeviceptr pointer, unsigned int value, size_t count) noexcept {
  return FillLinear(pointer, value, 4, count, nullptr, Blocking::kYes);
}

CUresult cuMemsetD2D8_v2(CUdeviceptr pointer, size_t pitch, unsigned char value, size_t width,
                         size_t height) noexcept {
  return Fill2D(pointer, pitch, value, 1, width, height, nullptr, Blocking::kYes);
}

CUresult cuMemsetD2D16_v2(CUdeviceptr pointer, size_t pitch, unsigned short value, size_t width,
                          size_t height) noexcept {
  return Fill2D(pointer, pitch, value, 2, width, height, nullptr, Blocking::kYes);
}

CUresult cuMemsetD2D32_v2(CUdeviceptr pointer, size_t pitch, unsigned int value, size_t width,
                          size_t height) noexcept {
  return Fill2D(pointer, pitch, value, 4, width, height, nullptr, Blocking::kYes);
}

CUresult cuMemsetD8Async(CUdeviceptr pointer, unsigned char value, size_t count,
                         CUstream stream) noexcept {
  return FillLinear(pointer, value, 1, count, stream, Blocking::kNo);
}

CUresult cuMemsetD16Async(CUdeviceptr pointer, unsigned short value, size_t count,
                          CUstream stream) noexcept {
  return FillLinear(pointer, value, 2, count, stream, Blocking::kNo);
}

CUresult cuMemsetD32Async(CUdeviceptr pointer, unsigned int value, size_t count,
                          CUstream stream) noexcept {
  return FillLinear(pointer, value, 4, count, stream, Blocking::kNo);
}

CUresult cuMemsetD2D8Async(CUdeviceptr pointer, size_t pitch, unsigned char value, size_t width,
                           size_t height, CUstream stream) noexcept {
  return Fill2D(pointer, pitch, value, 1, width, height, stream, Blocking::kNo);
}

CUresult cuMemsetD2D16Async(CUdeviceptr pointer, size_t pitch, unsigned short value, size_t width,
                            size_t height, CUstream stream) noexcept {
  return Fill2D(pointer, pitch, value, 2, width, height, stream, Blocking::kNo);
}

CUresult cuMemsetD2D32Async(CUdeviceptr pointer, size_t pitch, unsigned int value, size_t width,
                            size_t height, CUstream stream) noexcept {
  return Fill2D(pointer, pitch, value, 4, width, height, stream, Blocking::kNo);
}
