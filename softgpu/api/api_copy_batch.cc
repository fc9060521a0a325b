// Entry points: copies in batches. Here they are done one after the other, which is one of the
// orders that a program has to expect.
#include <algorithm>
#include <cstdint>
#include <new>

#include "softgpu/driver/driver.h"
#include "softgpu/driver/submit.h"
#include "src/cuda/driver_api.h"

namespace tandem::soft {
namespace {

constexpr size_t kNoneOfThem = SIZE_MAX;
constexpr size_t kMaxCopies = size_t{1} << 20;  // of a batch; more has no program in mind

// A batch, and whose it is.
struct Batch {
  size_t count = 0;
  size_t* failed = nullptr;  // if not null, is told which copy was at fault
  std::shared_ptr<Context> context = {};
  std::shared_ptr<Stream> stream = {};
};

bool IsLegacy(CUstream stream) {
  const auto value = reinterpret_cast<uintptr_t>(stream);
  return value == CU_STREAM_LEGACY_VALUE || (value == 0 && !PerThreadDefault::active());
}

CUresult CheckOrder(CUmemcpySrcAccessOrder order, unsigned int flags) {
  const bool known = order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
                     order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL ||
                     order == CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
  return known && (flags & ~CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE) == 0
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

// A copy as it is to be done.
struct Prepared {
  CopyWork work;
  CUmemcpySrcAccessOrder order = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
};

// Reads the source now, whatever the stream is at, so that the program may change it after the
// call. A source that the program wants waited for stays where it is: that is read in time, too.
CUresult SetAside(const Context& context, CopyWork* work) {
  Copy& copy = work->copy;
  if (TheDriver().memory->IsSynchronous(copy.from.address)) return CUDA_SUCCESS;
  const uint64_t slice = copy.width * copy.height;
  work->aside.reset(new (std::nothrow) uint8_t[slice * copy.depth]);
  if (work->aside == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  Copy reading = copy;
  reading.to = {reinterpret_cast<uint64_t>(work->aside.get()), copy.width, slice};
  copy.from = reading.to;
  return CopyOnHost(context.device->hardware(), reading);
}

// `act(prepared)` for what `prepare(index, prepared)` makes of each copy, as long as that works.
template <typename Prepare, typename Act>
CUresult ForEach(const Batch& batch, Prepare prepare, Act act) {
  for (size_t index = 0; index < batch.count; ++index) {
    Prepared copy;
    CUresult result = prepare(index, &copy);
    if (result == CUDA_SUCCESS) result = act(copy);
    if (result == CUDA_SUCCESS) continue;
    if (batch.failed != nullptr) *batch.failed = index;
    return result;
  }
  return CUDA_SUCCESS;
}

// Submits the copies, if all of them can be done.
template <typename Prepare>
CUresult SubmitBatch(const Batch& batch, Prepare prepare) {
  CU_TRY(ForEach(batch, prepare, [](Prepared& copy) {
    return CheckCopy(copy.work.copy, copy.work.to_device, copy.work.from_device);
  }));
  if (TheDriver().faults->Due(kFailCopy)) return CUDA_ERROR_OUT_OF_MEMORY;
  return ForEach(batch, prepare, [&](Prepared& copy) {
    if (copy.order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL) {
      CU_TRY(SetAside(*batch.context, &copy.work));
    }
    return SubmitChecked(batch.context, batch.stream, Blocking::kNo, copy.work);
  });
}

// What is wrong with no copy in particular.
CUresult CheckBatch(CUstream handle, Batch* batch) {
  if (batch->failed != nullptr) *batch->failed = kNoneOfThem;
  std::shared_ptr<Context> current;
  CU_TRY(HealthyContext(&current));
  if (batch->count == 0 || batch->count > kMaxCopies || IsLegacy(handle)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CU_TRY(FindStream(current, handle, &batch->context, &batch->stream));
  return RefuseIfCaptured(*batch->stream, CUDA_ERROR_NOT_SUPPORTED);
}

// Attributes hold from the copy whose index is beside them to the next one's.
CUresult CheckAttributes(size_t count, const CUmemcpyAttributes* attributes, const size_t* first,
                         size_t kinds) {
  if (attributes == nullptr || first == nullptr || kinds == 0 || kinds > count || first[0] != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < kinds; ++i) {
    if (first[i] >= count || (i > 0 && first[i] <= first[i - 1])) return CUDA_ERROR_INVALID_VALUE;
    CU_TRY(CheckOrder(attributes[i].srcAccessOrder, attributes[i].flags));
  }
  return CUDA_SUCCESS;
}

CUresult CopyBatch(const CUdeviceptr* to, const CUdeviceptr* from, const size_t* bytes,
                   size_t count, const CUmemcpyAttributes* attributes, const size_t* first,
                   size_t kinds, size_t* failed, CUstream stream) {
  Batch batch = {count, failed};
  CU_TRY(CheckBatch(stream, &batch));
  if (to == nullptr || from == nullptr || bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CU_TRY(CheckAttributes(count, attributes, first, kinds));
  return SubmitBatch(batch, [&](size_t i, Prepared* copy) {
    if (bytes[i] == 0) return CUDA_ERROR_INVALID_VALUE;
    const auto kind = std::upper_bound(first, first + kinds, i) - first - 1;
    copy->order = attributes[kind].srcAccessOrder;
    CUDA_MEMCPY3D row = {};
    row.srcMemoryType = row.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    row.srcDevice = from[i];
    row.dstDevice = to[i];
    row.WidthInBytes = bytes[i];
    row.Height = row.Depth = 1;
    return CopyWorkOf(row, &copy->work);
  });
}

// One, unless one of the sides is an array; negative for a handle that is none.
int ElementBytes(const CUmemcpy3DOperand& operand) {
  if (operand.type != CU_MEMCPY_OPERAND_TYPE_ARRAY) return 1;
  const auto array = TheDriver().arrays.Find(operand.op.array.array);
  return array == nullptr ? -1 : static_cast<int>(array->element_bytes);
}

// A side of a box, as the plain call for one box has it.
struct BoxSide {
  CUmemorytype type = CU_MEMORYTYPE_UNIFIED;
  CUdeviceptr pointer = 0;
  CUarray array = nullptr;
  size_t x = 0, y = 0, z = 0;  // x in bytes
  size_t pitch = 0, height = 0;
};

CUresult SideOf(const CUmemcpy3DOperand& operand, const CUextent3D& extent, size_t element_bytes,
                BoxSide* side) {
  size_t unit = 0;  // what is counted in elements
  if (operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    const CUoffset3D& offset = operand.op.array.offset;
    side->type = CU_MEMORYTYPE_ARRAY;
    side->array = operand.op.array.array;
    side->y = offset.y;
    side->z = offset.z;
    unit = offset.x;
  } else if (operand.type == CU_MEMCPY_OPERAND_TYPE_POINTER) {
    const auto& pointer = operand.op.ptr;
    side->pointer = pointer.ptr;
    side->height = pointer.layerHeight != 0 ? pointer.layerHeight : extent.height;
    // A single row may be longer than a pitch can be.
    const bool single = extent.height == 1 && extent.depth == 1;
    unit = pointer.rowLength != 0 ? pointer.rowLength : single ? 0 : extent.width;
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  size_t* const in_bytes = side->array != nullptr ? &side->x : &side->pitch;
  return __builtin_mul_overflow(unit, element_bytes, in_bytes) ? CUDA_ERROR_INVALID_VALUE
                                                               : CUDA_SUCCESS;
}

CUresult BoxWorkOf(const CUDA_MEMCPY3D_BATCH_OP& copy, CopyWork* work) {
  CU_TRY(CheckOrder(copy.srcAccessOrder, copy.flags));
  const int to_bytes = ElementBytes(copy.dst), from_bytes = ElementBytes(copy.src);
  if (to_bytes < 0 || from_bytes < 0) return CUDA_ERROR_INVALID_HANDLE;
  const auto element_bytes = static_cast<size_t>(std::max(to_bytes, from_bytes));
  CUDA_MEMCPY3D box = {};
  const CUextent3D& extent = copy.extent;
  if (extent.width == 0 || extent.height == 0 || extent.depth == 0 ||
      __builtin_mul_overflow(extent.width, element_bytes, &box.WidthInBytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  BoxSide to, from;
  CU_TRY(SideOf(copy.dst, extent, element_bytes, &to));
  CU_TRY(SideOf(copy.src, extent, element_bytes, &from));
  box.Height = extent.height;
  box.Depth = extent.depth;
  box.srcMemoryType = from.type;
  box.srcDevice = from.pointer;
  box.srcArray = from.array;
  box.srcXInBytes = from.x;
  box.srcY = from.y;
  box.srcZ = from.z;
  box.srcPitch = from.pitch;
  box.srcHeight = from.height;
  box.dstMemoryType = to.type;
  box.dstDevice = to.pointer;
  box.dstArray = to.array;
  box.dstXInBytes = to.x;
  box.dstY = to.y;
  box.dstZ = to.z;
  box.dstPitch = to.pitch;
  box.dstHeight = to.height;
  return CopyWorkOf(box, work);
}

CUresult CopyBoxes(size_t count, const CUDA_MEMCPY3D_BATCH_OP* copies, size_t* failed,
                   unsigned long long flags, CUstream stream) {
  Batch batch = {count, failed};
  CU_TRY(CheckBatch(stream, &batch));
  if (copies == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return SubmitBatch(batch, [&](size_t i, Prepared* copy) {
    copy->order = copies[i].srcAccessOrder;
    return BoxWorkOf(copies[i], &copy->work);
  });
}

}  // namespace
}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuMemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count,
                            CUmemcpyAttributes* attributes, size_t* first, size_t kinds,
                            size_t* failed, CUstream stream) noexcept {
  return CopyBatch(to, from, bytes, count, attributes, first, kinds, failed, stream);
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count,
                               CUmemcpyAttributes* attributes, size_t* first, size_t kinds,
                               CUstream stream) noexcept {
  return CopyBatch(to, from, bytes, count, attributes, first, kinds, nullptr, stream);
}

CUresult cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, size_t* failed,
                              unsigned long long flags, CUstream stream) noexcept {
  return CopyBoxes(count, copies, failed, flags, stream);
}

CUresult cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP* copies,
                                 unsigned long long flags, CUstream stream) noexcept {
  return CopyBoxes(count, copies, nullptr, flags, stream);
}
