// Entry points: arrays.
#include "softgpu/driver/driver.h"
#include "src/cuda/driver_api.h"

namespace tandem::soft {
namespace {

CUresult Find(CUarray handle, std::shared_ptr<Array>* array) {
  std::shared_ptr<Context> current;
  CU_TRY(HealthyContext(&current));
  *array = TheDriver().arrays.Find(handle);
  return *array == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

}  // namespace
}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* descriptor) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(HealthyContext(&context));
  if (array == nullptr || descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_ARRAY3D_DESCRIPTOR full = {descriptor->Width,  descriptor->Height,      /*Depth=*/0,
                                        descriptor->Format, descriptor->NumChannels, /*Flags=*/0};
  return CreateArray(context, full, array);
}

CUresult cuArray3DCreate_v2(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(HealthyContext(&context));
  if (array == nullptr || descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return CreateArray(context, *descriptor, array);
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* descriptor, CUarray handle) noexcept {
  std::shared_ptr<Array> array;
  CU_TRY(Find(handle, &array));
  if (descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_ARRAY3D_DESCRIPTOR& full = array->descriptor;
  *descriptor = {full.Width, full.Height, full.Format, full.NumChannels};
  return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* descriptor, CUarray handle) noexcept {
  std::shared_ptr<Array> array;
  CU_TRY(Find(handle, &array));
  if (descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *descriptor = array->descriptor;
  return CUDA_SUCCESS;
}

// Waits for the work of its context, as freeing memory does.
CUresult cuArrayDestroy(CUarray handle) noexcept {
  std::shared_ptr<Context> current;
  CU_TRY(HealthyContext(&current));
  Driver& driver = TheDriver();
  if (driver.arrays.Find(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CU_TRY(RefuseUnsafe());
  const auto array = driver.arrays.Take(handle);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result = driver.Synchronise(*array->context);
  MutexLock lock(driver.memory->mutex());
  if (!array->context->destroyed.load()) array->context->device->heap().Free(array->address);
  return result;
}
