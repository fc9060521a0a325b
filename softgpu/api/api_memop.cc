// Entry points: streams that write values to memory and wait for them.
#include <atomic>
#include <span>
#include <type_traits>

#include "softgpu/driver/driver.h"
#include "src/cuda/driver_api.h"

namespace tandem::soft {
namespace {

using Operation = CUstreamBatchMemOpParams;

bool IsWide(CUstreamBatchMemOpType type) {
  return type == CU_STREAM_MEM_OP_WAIT_VALUE_64 || type == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}

CUresult Check(const Operation& operation) {
  const Operation::Value& value = operation.waitValue;
  const bool wait = operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
                    operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
  switch (operation.operation) {
    case CU_STREAM_MEM_OP_BARRIER:
      return CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
      return CUDA_ERROR_NOT_SUPPORTED;
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      if ((value.flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
      if (value.flags > CU_STREAM_WAIT_VALUE_NOR) return CUDA_ERROR_INVALID_VALUE;
      break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      if (value.flags > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) return CUDA_ERROR_INVALID_VALUE;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  const uint64_t bytes = IsWide(operation.operation) ? 8 : 4;
  const Access access = wait ? Access::kRead : Access::kReadWrite;
  if (value.address % bytes != 0 || !TheDriver().memory->Usable(value.address, bytes, access)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

template <typename T>
std::atomic<T>& At(uint64_t address) {
  static_assert(sizeof(std::atomic<T>) == sizeof(T));
  return *reinterpret_cast<std::atomic<T>*>(address);
}

template <typename T>
bool Holds(T now, T wanted, unsigned int flags) {
  switch (flags) {
    case CU_STREAM_WAIT_VALUE_GEQ:  // on a circle
      return static_cast<std::make_signed_t<T>>(now - wanted) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return now == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
      return (now & wanted) != 0;
    default:
      return static_cast<T>(~(now | wanted)) != 0;
  }
}

// Memory that went away meanwhile is not waited for: freeing it broke the program.
bool IsThere(AddressSpace& space, const Operation& operation) {
  const MapLock::Reader reader(space.map_lock());
  const uint64_t address = operation.waitValue.address;
  const Operation::Value& value = operation.waitValue;
  if (!space.Allows(address, 4, Access::kRead)) return true;
  return IsWide(operation.operation)
             ? Holds(At<uint64_t>(address).load(), value.value64, value.flags)
             : Holds(At<uint32_t>(address).load(), value.value, value.flags);
}

CUresult Write(AddressSpace& space, const Operation& operation) {
  const MapLock::Reader reader(space.map_lock());
  const Operation::Value& value = operation.writeValue;
  if (!space.Allows(value.address, 4, Access::kReadWrite)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  if (IsWide(operation.operation)) {
    At<uint64_t>(value.address).store(value.value64);
  } else {
    At<uint32_t>(value.address).store(value.value);
  }
  return CUDA_SUCCESS;
}

void Submit(const std::shared_ptr<Context>& context, const std::shared_ptr<Stream>& stream,
            const Operation& operation) {
  Driver& driver = TheDriver();
  AddressSpace* const space = driver.space.get();
  Task task;
  switch (operation.operation) {
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      // Not the compute engine: the kernel that runs there may be waiting for this value.
      task.engine = EngineKind::kToDevice;
      task.run = [space, operation] { return Write(*space, operation); };
      break;
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      task.after.push_back(driver.watch.Until(context->group, driver.scheduler.Pending(stream),
                                              [=] { return IsThere(*space, operation); }));
      break;
    default:
      return;
  }
  driver.scheduler.Submit(stream, std::move(task));
}

CUresult Batch(CUstream handle, std::span<const Operation> operations, unsigned int flags) {
  std::shared_ptr<Context> current, context;
  std::shared_ptr<Stream> stream;
  CU_TRY(HealthyContext(&current));
  CU_TRY(FindStream(current, handle, &context, &stream));
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  CU_TRY(RefuseIfCaptured(*stream));
  for (const Operation& operation : operations) CU_TRY(Check(operation));
  for (const Operation& operation : operations) Submit(context, stream, operation);
  return CUDA_SUCCESS;
}

constexpr unsigned int kMaxOperations = 256;

CUresult Batch(CUstream stream, unsigned int count, const Operation* operations,
               unsigned int flags) {
  if (operations == nullptr || count == 0 || count > kMaxOperations) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return Batch(stream, {operations, count}, flags);
}

CUresult One(CUstream stream, CUstreamBatchMemOpType type, CUdeviceptr address, uint64_t value,
             unsigned int flags) {
  Operation operation = {};
  operation.waitValue.operation = type;
  operation.waitValue.address = address;
  operation.waitValue.value64 = value;
  operation.waitValue.flags = flags;
  return Batch(stream, {&operation, 1}, 0);
}

}  // namespace
}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, uint32_t value,
                                unsigned int flags) noexcept {
  return One(stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, address, value, flags);
}
CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, uint64_t value,
                                unsigned int flags) noexcept {
  return One(stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, address, value, flags);
}
CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, uint32_t value,
                                 unsigned int flags) noexcept {
  return One(stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, address, value, flags);
}
CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, uint64_t value,
                                 unsigned int flags) noexcept {
  return One(stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, address, value, flags);
}
CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                               CUstreamBatchMemOpParams* operations, unsigned int flags) noexcept {
  return Batch(stream, count, operations, flags);
}

// The calls before 11.7 do the same here.
CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, uint32_t value,
                             unsigned int flags) noexcept {
  return cuStreamWaitValue32_v2(stream, address, value, flags);
}
CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, uint64_t value,
                             unsigned int flags) noexcept {
  return cuStreamWaitValue64_v2(stream, address, value, flags);
}
CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, uint32_t value,
                              unsigned int flags) noexcept {
  return cuStreamWriteValue32_v2(stream, address, value, flags);
}
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, uint64_t value,
                              unsigned int flags) noexcept {
  return cuStreamWriteValue64_v2(stream, address, value, flags);
}
CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count,
                            CUstreamBatchMemOpParams* operations, unsigned int flags) noexcept {
  return cuStreamBatchMemOp_v2(stream, count, operations, flags);
}
