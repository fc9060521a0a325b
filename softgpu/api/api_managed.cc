// Entry points: managed memory.
#include <cstring>
#include <optional>
#include <vector>

#include "softgpu/driver/driver.h"
#include "src/cuda/driver_api.h"

namespace tandem::soft {
namespace {

struct Managed {
  std::shared_ptr<ManagedBlock> block;
  uint64_t block_size = 0;  // bytes
  bool variables = false;   // it is a module's
  Range range;              // from where the block begins
};

// The managed block that holds the whole range.
std::optional<Managed> FindManaged(CUdeviceptr pointer, size_t bytes) {
  Driver& driver = TheDriver();
  MutexLock lock(driver.memory->mutex());
  const auto found = driver.memory->Find(pointer);
  if (!found || bytes == 0 || bytes > found->range.end() - pointer) return std::nullopt;
  if (found->managed == nullptr) return std::nullopt;
  return Managed{found->managed, found->range.size, found->internal,
                 Range{pointer - found->range.begin, bytes}};
}

CUresult CheckPlace(CUdevice device) {
  return device == CU_DEVICE_CPU || TheDriver().FindDevice(device) != nullptr
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_DEVICE;
}

// A location as the older calls name it.
CUresult DeviceOf(const CUmemLocation& location, CUdevice* device) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      *device = location.id;
      return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      *device = CU_DEVICE_CPU;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUmemLocationType TypeOf(CUdevice device) {
  return device == CU_DEVICE_INVALID ? CU_MEM_LOCATION_TYPE_INVALID
         : device == CU_DEVICE_CPU   ? CU_MEM_LOCATION_TYPE_HOST
                                     : CU_MEM_LOCATION_TYPE_DEVICE;
}

constexpr size_t kMaxAnswer = size_t{1} << 20;  // bytes: far more than there can be devices

CUresult AnswerOne(void* data, size_t size, CUmem_range_attribute attribute,
                   const ManagedAdvice& advice) {
  if (data == nullptr || size < sizeof(int) || size % sizeof(int) != 0 || size > kMaxAnswer) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<int> answer(1);
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      answer[0] = advice.read_mostly ? 1 : 0;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
      answer[0] = advice.preferred;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
      answer.assign(advice.accessed_by.begin(), advice.accessed_by.end());
      answer.resize(size / sizeof(int), CU_DEVICE_INVALID);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
      answer[0] = advice.prefetched;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      answer[0] = TypeOf(advice.preferred);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      answer[0] = advice.preferred;
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      answer[0] = TypeOf(advice.prefetched);
      break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      answer[0] = advice.prefetched;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (attribute != CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY && size != sizeof(int)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::memcpy(data, answer.data(), answer.size() * sizeof(int));
  return CUDA_SUCCESS;
}

// The memory is where it is; the call comes in its turn in the stream.
CUresult Prefetch(CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream handle) {
  std::shared_ptr<Context> current, context;
  std::shared_ptr<Stream> stream;
  CU_TRY(HealthyContext(&current));
  CU_TRY(FindStream(current, handle, &context, &stream));
  const auto managed = FindManaged(pointer, bytes);
  if (!managed) return CUDA_ERROR_INVALID_VALUE;
  CU_TRY(CheckPlace(device));
  CU_TRY(RefuseIfCaptured(*stream));
  managed->block->NotePrefetch(managed->range, device);
  TheDriver().scheduler.Submit(stream, Task{});
  return CUDA_SUCCESS;
}

struct Batch {
  std::shared_ptr<Context> context;
  std::shared_ptr<Stream> stream;
  std::vector<Managed> ranges;
};

CUresult FindBatch(const CUdeviceptr* pointers, const size_t* bytes, size_t count,
                   unsigned long long flags, CUstream handle, Batch* batch) {
  std::shared_ptr<Context> current;
  CU_TRY(HealthyContext(&current));
  CU_TRY(FindStream(current, handle, &batch->context, &batch->stream));
  if (pointers == nullptr || bytes == nullptr || count == 0 || flags != 0 ||
      batch->stream->kind == StreamKind::kLegacy) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i) {
    auto managed = FindManaged(pointers[i], bytes[i]);
    if (!managed) return CUDA_ERROR_INVALID_VALUE;
    batch->ranges.push_back(std::move(*managed));
  }
  return RefuseIfCaptured(*batch->stream);
}

// Each place holds from the range whose index is beside it to the next one's.
CUresult PrefetchBatch(const Batch& batch, const CUmemLocation* places, const size_t* first,
                       size_t kinds) {
  const size_t count = batch.ranges.size();
  if (places == nullptr || first == nullptr || kinds == 0 || kinds > count || first[0] != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<CUdevice> devices(kinds);
  for (size_t i = 0; i < kinds; ++i) {
    if (first[i] >= count || (i > 0 && first[i] <= first[i - 1])) return CUDA_ERROR_INVALID_VALUE;
    CU_TRY(DeviceOf(places[i], &devices[i]));
    CU_TRY(CheckPlace(devices[i]));
  }
  for (size_t i = 0, kind = 0; i < count; ++i) {
    if (kind + 1 < kinds && first[kind + 1] == i) ++kind;
    batch.ranges[i].block->NotePrefetch(batch.ranges[i].range, devices[kind]);
  }
  TheDriver().scheduler.Submit(batch.stream, Task{});
  return CUDA_SUCCESS;
}

CUresult Advise(CUdeviceptr pointer, size_t bytes, CUmem_advise advice, CUdevice device) {
  CU_TRY(Ready());
  const auto managed = FindManaged(pointer, bytes);
  if (!managed || advice < CU_MEM_ADVISE_SET_READ_MOSTLY ||
      advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool names_place = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
                           advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
                           advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
  if (names_place) CU_TRY(CheckPlace(device));
  managed->block->Advise(managed->range, advice, device);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuMemAllocManaged(CUdeviceptr* pointer, size_t bytes, unsigned int flags) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(HealthyContext(&context));
  if (pointer == nullptr || bytes == 0 ||
      (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return TheDriver().Allocate(context, bytes, Heap::Users::kEveryDevice, pointer);
}

CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t bytes, CUdevice device,
                            CUstream stream) noexcept {
  return Prefetch(pointer, bytes, device, stream);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr pointer, size_t bytes, CUmemLocation location,
                               unsigned int flags, CUstream stream) noexcept {
  std::shared_ptr<Context> context;
  CUdevice device = CU_DEVICE_INVALID;
  CU_TRY(HealthyContext(&context));
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  CU_TRY(DeviceOf(location, &device));
  return Prefetch(pointer, bytes, device, stream);
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr* pointers, size_t* bytes, size_t count,
                                 CUmemLocation* places, size_t* first, size_t kinds,
                                 unsigned long long flags, CUstream stream) noexcept {
  Batch batch;
  CU_TRY(FindBatch(pointers, bytes, count, flags, stream, &batch));
  return PrefetchBatch(batch, places, first, kinds);
}

// Discarded memory keeps its bytes, which are as good as any.
CUresult cuMemDiscardBatchAsync(CUdeviceptr* pointers, size_t* bytes, size_t count,
                                unsigned long long flags, CUstream stream) noexcept {
  Batch batch;
  CU_TRY(FindBatch(pointers, bytes, count, flags, stream, &batch));
  TheDriver().scheduler.Submit(batch.stream, Task{});
  return CUDA_SUCCESS;
}

CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* pointers, size_t* bytes, size_t count,
                                           CUmemLocation* places, size_t* first, size_t kinds,
                                           unsigned long long flags, CUstream stream) noexcept {
  return cuMemPrefetchBatchAsync(pointers, bytes, count, places, first, kinds, flags, stream);
}

CUresult cuMemAdvise(CUdeviceptr pointer, size_t bytes, CUmem_advise advice,
                     CUdevice device) noexcept {
  return Advise(pointer, bytes, advice, device);
}

CUresult cuMemAdvise_v2(CUdeviceptr pointer, size_t bytes, CUmem_advise advice,
                        CUmemLocation location) noexcept {
  CUdevice device = CU_DEVICE_CPU;  // where the advice names no place, the location is not read
  if (advice >= CU_MEM_ADVISE_SET_PREFERRED_LOCATION &&
      advice != CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION) {
    CU_TRY(DeviceOf(location, &device));
  }
  return Advise(pointer, bytes, advice, device);
}

CUresult cuMemRangeGetAttribute(void* data, size_t size, CUmem_range_attribute attribute,
                                CUdeviceptr pointer, size_t bytes) noexcept {
  CU_TRY(Ready());
  const auto managed = FindManaged(pointer, bytes);
  if (!managed) return CUDA_ERROR_INVALID_VALUE;
  return AnswerOne(data, size, attribute, managed->block->AdviceFor(managed->range));
}

CUresult cuMemRangeGetAttributes(void** data, size_t* sizes, CUmem_range_attribute* attributes,
                                 size_t count, CUdeviceptr pointer, size_t bytes) noexcept {
  CU_TRY(Ready());
  if (data == nullptr || sizes == nullptr || attributes == nullptr || count == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i) {
    CU_TRY(cuMemRangeGetAttribute(data[i], sizes[i], attributes[i], pointer, bytes));
  }
  return CUDA_SUCCESS;
}

CUresult cuStreamAttachMemAsync(CUstream handle, CUdeviceptr pointer, size_t bytes,
                                unsigned int flags) noexcept {
  std::shared_ptr<Context> current, context;
  std::shared_ptr<Stream> stream;
  CU_TRY(HealthyContext(&current));
  CU_TRY(FindStream(current, handle, &context, &stream));
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST &&
      flags != CU_MEM_ATTACH_SINGLE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto managed = FindManaged(pointer, bytes == 0 ? 1 : bytes);
  const bool whole = managed && (bytes == managed->block_size || managed->variables);
  if (!managed || (bytes != 0 && !whole)) return CUDA_ERROR_INVALID_VALUE;
  // The default stream stands for all the others.
  if (flags == CU_MEM_ATTACH_SINGLE && stream == context->legacy) return CUDA_ERROR_INVALID_VALUE;
  CU_TRY(RefuseIfCaptured(*stream));
  TheDriver().scheduler.Submit(stream, Task{});
  return CUDA_SUCCESS;
}
