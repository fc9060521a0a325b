#include "src/softgpu/submit.h"

#include "src/softgpu/driver.h"

namespace tandem::soft {
namespace {

// Bytes from the first to behind the last; false if that is more than 64 bits can say.
bool Extent(const Rows& rows, uint64_t width, uint64_t height, uint64_t depth, uint64_t* bytes) {
  uint64_t slices = 0, end = 0;
  return !__builtin_mul_overflow(rows.pitch, height - 1, bytes) &&
         !__builtin_add_overflow(*bytes, width, bytes) &&
         !__builtin_mul_overflow(rows.slice, depth - 1, &slices) &&
         !__builtin_add_overflow(*bytes, slices, bytes) &&
         !__builtin_add_overflow(*bytes, rows.address, &end);
}

Task TaskFor(const Hardware& hardware, const Copy& copy, bool to_device, bool from_device) {
  Task task;
  if (to_device && from_device) {
    task.engine = EngineKind::kCompute;
    task.run = [&hardware, copy] { return CopyOnDevice(hardware, copy); };
  } else if (to_device) {
    task.engine = EngineKind::kToDevice;
    task.run = [&hardware, copy] { return CopyOverBus(hardware, Direction::kToDevice, copy); };
  } else if (from_device) {
    task.engine = EngineKind::kToHost;
    task.run = [&hardware, copy] { return CopyOverBus(hardware, Direction::kToHost, copy); };
  } else {
    // Not with the host functions: one of them may take for ever.
    task.engine = EngineKind::kToHost;
    task.run = [&hardware, copy] { return CopyOnHost(hardware, copy); };
  }
  return task;
}

}  // namespace

CUresult SubmitCopy(CUstream handle, Blocking blocking, const Copy& copy, bool to_device,
                    bool from_device) {
  std::shared_ptr<Context> current, context;
  std::shared_ptr<Stream> stream;
  CU_TRY(HealthyContext(&current));
  CU_TRY(FindStream(current, handle, &context, &stream));
  if (copy.width == 0 || copy.height == 0 || copy.depth == 0) return CUDA_SUCCESS;
  uint64_t to_extent = 0, from_extent = 0;
  if (copy.to.address == 0 || copy.from.address == 0 ||
      !Extent(copy.to, copy.width, copy.height, copy.depth, &to_extent) ||
      !Extent(copy.from, copy.width, copy.height, copy.depth, &from_extent)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Driver& driver = TheDriver();
  Memory& memory = *driver.memory;
  const bool to_known = to_device || driver.space->Contains(copy.to.address);
  const bool from_known = from_device || driver.space->Contains(copy.from.address);
  if (to_known && !memory.Usable(copy.to.address, to_extent, Access::kReadWrite)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (from_known && !memory.Usable(copy.from.address, from_extent, Access::kRead)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool pinned = (to_device || memory.IsPinned(copy.to.address, to_extent)) &&
                      (from_device || memory.IsPinned(copy.from.address, from_extent));
  const bool inside = to_device && from_device;
  const bool wait = !pinned || (blocking == Blocking::kYes && !inside);
  const Dependency submitted = driver.scheduler.Submit(
      stream, TaskFor(context->device->hardware(), copy, to_device, from_device));
  if (!wait) return CUDA_SUCCESS;
  driver.scheduler.Wait({submitted});
  return context->error();
}

CUresult SubmitFill(CUstream handle, const Fill& fill) {
  std::shared_ptr<Context> current, context;
  std::shared_ptr<Stream> stream;
  CU_TRY(HealthyContext(&current));
  CU_TRY(FindStream(current, handle, &context, &stream));
  if (fill.width == 0 || fill.height == 0) return CUDA_SUCCESS;
  uint64_t extent = 0;
  if (fill.to.address % fill.element_bytes != 0 ||
      !Extent(fill.to, fill.width, fill.height, 1, &extent)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!TheDriver().memory->Usable(fill.to.address, extent, Access::kReadWrite)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Task task;
  task.engine = EngineKind::kCompute;
  task.run = [&hardware = context->device->hardware(), fill] {
    return FillOnDevice(hardware, fill);
  };
  TheDriver().scheduler.Submit(stream, std::move(task));
  return CUDA_SUCCESS;
}

}  // namespace tandem::soft
