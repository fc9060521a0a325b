// Entry points: device memory and what is known about addresses.
#include <cstring>

#include "softgpu/driver/driver.h"
#include "src/cuda/driver_api.h"

namespace tandem::soft {
namespace {

CUresult Allocate(const std::shared_ptr<Context>& context, size_t bytes, CUdeviceptr* pointer) {
  return TheDriver().Allocate(context, bytes, Heap::Users::kItsDevice, pointer);
}

template <typename T>
CUresult Answer(void* data, T value) {
  std::memcpy(data, &value, sizeof(value));  // the program's pointer may be of any alignment
  return CUDA_SUCCESS;
}

// One attribute of an address that was found.
CUresult AnswerAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer,
                         const Memory::Found& found) {
  const bool host = Memory::IsOfHost(found);
  const bool block = found.kind == Memory::Found::Kind::kBlock;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return Answer(data, reinterpret_cast<CUcontext>(found.owner));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return Answer(data, host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return Answer(data, pointer);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!host && found.managed == nullptr) return CUDA_ERROR_INVALID_VALUE;
      return Answer(data, pointer);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return Answer(data, found.managed != nullptr ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return Answer(data, found.shareable ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return Answer(data, TheDriver().memory->IsSynchronous(pointer) ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return Answer(data, 0);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return Answer(data, static_cast<unsigned long long>(found.number));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return Answer(data, found.device);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return Answer(data, found.range.begin);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return Answer(data, static_cast<size_t>(found.range.size));
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return Answer(data, block || found.access != Access::kNone ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return Answer(data, FlagsOf(found.access));
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return Answer(data, static_cast<uint64_t>(found.handle_types));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return Answer(data, found.pool);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

std::optional<Memory::Found> Find(CUdeviceptr pointer) {
  Driver& driver = TheDriver();
  MutexLock lock(driver.memory->mutex());
  return driver.memory->Find(pointer);
}

// Bytes of an attribute's answer; zero for a number that is no attribute.
size_t SizeOf(CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return sizeof(int);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      return 2 * sizeof(uint64_t);
    default:
      return attribute >= CU_POINTER_ATTRIBUTE_CONTEXT &&
                     attribute <= CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID
                 ? sizeof(uint64_t)
                 : 0;
  }
}

}  // namespace
}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(HealthyContext(&context));
  if (pointer == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  return Allocate(context, bytes, pointer);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* pointer, size_t* pitch, size_t width, size_t height,
                            unsigned int element_bytes) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(HealthyContext(&context));
  if (pointer == nullptr || pitch == nullptr || width == 0 || height == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (element_bytes != 4 && element_bytes != 8 && element_bytes != 16) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (width > kMaxPitch / kBlockAlignment * kBlockAlignment) return CUDA_ERROR_INVALID_VALUE;
  const size_t row = (width + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
  size_t bytes = 0;
  if (__builtin_mul_overflow(row, height, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  CU_TRY(Allocate(context, bytes, pointer));
  *pitch = row;
  return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr pointer) noexcept {
  CU_TRY(HealthyOrNoContext());
  if (pointer == 0) return CUDA_SUCCESS;
  Driver& driver = TheDriver();
  const auto found = Find(pointer);
  if (!found || found->kind != Memory::Found::Kind::kBlock || found->range.begin != pointer ||
      found->internal) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CU_TRY(RefuseUnsafe());
  CU_TRY(driver.SynchroniseOwner(found->owner));
  MutexLock lock(driver.memory->mutex());
  if (Pool* pool = driver.memory->pools().OfOwner(found->pool)) {
    if (!pool->Find(pointer)) return CUDA_ERROR_INVALID_VALUE;
    pool->Release(pool->Detach(pointer));
    return CUDA_SUCCESS;
  }
  if (found->of_graph) {
    const auto block = driver.memory->graphs().Find(pointer);
    if (block == nullptr || !block->allocated) return CUDA_ERROR_INVALID_VALUE;
    driver.memory->graphs().Free(*block, std::nullopt);
    return CUDA_SUCCESS;
  }
  Device* device = driver.FindDevice(found->device);
  return device->heap().Free(pointer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(CurrentContext(&context));
  if (free == nullptr && total == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (free != nullptr) *free = context->device->shared().Free().count;
  if (total != nullptr) *total = context->device->shared().total().count;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr pointer) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(CurrentContext(&context));
  const auto found = Find(pointer);
  if (!found) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = found->range.begin;
  if (size != nullptr) *size = found->range.size;
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute,
                               CUdeviceptr pointer) noexcept {
  CU_TRY(Ready());
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto found = Find(pointer);
  return found ? AnswerAttribute(data, attribute, pointer, *found) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute,
                               CUdeviceptr pointer) noexcept {
  CU_TRY(Ready());
  if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  int flag = 0;
  std::memcpy(&flag, value, sizeof(flag));
  return TheDriver().memory->SetSynchronous(pointer, flag != 0) ? CUDA_SUCCESS
                                                                : CUDA_ERROR_INVALID_VALUE;
}

// An unknown address is no error here: its attributes read as zero.
CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr pointer) noexcept {
  CU_TRY(Ready());
  if (count == 0 || attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < count; ++i) {
    if (data[i] == nullptr || SizeOf(attributes[i]) == 0) return CUDA_ERROR_INVALID_VALUE;
  }
  const auto found = Find(pointer);
  for (unsigned int i = 0; i < count; ++i) {
    if (found && AnswerAttribute(data[i], attributes[i], pointer, *found) == CUDA_SUCCESS) continue;
    std::memset(data[i], 0, SizeOf(attributes[i]));
  }
  return CUDA_SUCCESS;
}
