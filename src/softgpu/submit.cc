#include "src/softgpu/submit.h"

#include "src/softgpu/driver.h"

namespace tandem::soft {
namespace {

uint64_t Extent(const Rows& rows, uint64_t width, uint64_t height) {
  return rows.pitch * (height - 1) + width;
}

// The rows are inside the address space's arithmetic: no product or sum wraps.
bool Sane(const Rows& rows, uint64_t width, uint64_t height) {
  uint64_t span = 0;
  return !__builtin_mul_overflow(rows.pitch, height - 1, &span) &&
         !__builtin_add_overflow(span, width, &span) &&
         !__builtin_add_overflow(span, rows.address, &span);
}

// The copy as the program of a graph is told of it.
CUDA_MEMCPY3D Shown(const Copy& copy, bool to_device, bool from_device) {
  CUDA_MEMCPY3D shown = {};
  shown.srcMemoryType = from_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  shown.dstMemoryType = to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  if (from_device) shown.srcDevice = copy.from.address;
  if (!from_device) shown.srcHost = reinterpret_cast<const void*>(copy.from.address);
  if (to_device) shown.dstDevice = copy.to.address;
  if (!to_device) shown.dstHost = reinterpret_cast<void*>(copy.to.address);
  shown.srcPitch = copy.from.pitch;
  shown.dstPitch = copy.to.pitch;
  shown.WidthInBytes = copy.width;
  shown.Height = copy.height;
  shown.Depth = 1;
  return shown;
}

}  // namespace

CUresult SubmitWork(const std::shared_ptr<Context>& context, const std::shared_ptr<Stream>& stream,
                    Work work, std::optional<Dependency>* submitted) {
  bool captured = false;
  work.context = context;
  CU_TRY(CaptureWork(stream, work, &captured));
  if (captured) return CUDA_SUCCESS;
  const Dependency at = TheDriver().scheduler.Submit(stream, TaskFor(*context, std::move(work)));
  if (submitted != nullptr) *submitted = at;
  return CUDA_SUCCESS;
}

CUresult CheckCopy(const Copy& copy, bool to_device, bool from_device) {
  if (copy.to.address == 0 || copy.from.address == 0 || !Sane(copy.to, copy.width, copy.height) ||
      !Sane(copy.from, copy.width, copy.height)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Driver& driver = TheDriver();
  Memory& memory = *driver.memory;
  const uint64_t to_extent = Extent(copy.to, copy.width, copy.height);
  const uint64_t from_extent = Extent(copy.from, copy.width, copy.height);
  const bool to_known = to_device || driver.space->Contains(copy.to.address);
  const bool from_known = from_device || driver.space->Contains(copy.from.address);
  if (to_known && !memory.Usable(copy.to.address, to_extent, Access::kReadWrite)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (from_known && !memory.Usable(copy.from.address, from_extent, Access::kRead)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult SubmitCopy(CUstream handle, Blocking blocking, const Copy& copy, bool to_device,
                    bool from_device) {
  std::shared_ptr<Context> current, context;
  std::shared_ptr<Stream> stream;
  CU_TRY(HealthyContext(&current));
  CU_TRY(FindStream(current, handle, &context, &stream));
  if (copy.width == 0 || copy.height == 0) return CUDA_SUCCESS;
  CU_TRY(CheckCopy(copy, to_device, from_device));
  if (blocking == Blocking::kYes) {
    CU_TRY(RefuseIfCaptured(*stream));
    CU_TRY(RefuseUnsafe());
  }
  Memory& memory = *TheDriver().memory;
  const uint64_t to_extent = Extent(copy.to, copy.width, copy.height);
  const uint64_t from_extent = Extent(copy.from, copy.width, copy.height);
  const bool pinned = (to_device || memory.IsPinned(copy.to.address, to_extent)) &&
                      (from_device || memory.IsPinned(copy.from.address, from_extent));
  const bool inside = to_device && from_device;
  const bool wait = !pinned || (blocking == Blocking::kYes && !inside);
  std::optional<Dependency> submitted;
  CU_TRY(SubmitWork(
      context, stream,
      {nullptr, CopyWork{Shown(copy, to_device, from_device), {copy}, to_device, from_device}},
      &submitted));
  if (!wait || !submitted) return CUDA_SUCCESS;
  TheDriver().scheduler.Wait({*submitted});
  return context->error();
}

CUresult CheckFill(const Fill& fill) {
  if (fill.to.address % fill.element_bytes != 0 || !Sane(fill.to, fill.width, fill.height)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const uint64_t extent = Extent(fill.to, fill.width, fill.height);
  return TheDriver().memory->Usable(fill.to.address, extent, Access::kReadWrite)
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

CUresult SubmitFill(CUstream handle, const Fill& fill) {
  std::shared_ptr<Context> current, context;
  std::shared_ptr<Stream> stream;
  CU_TRY(HealthyContext(&current));
  CU_TRY(FindStream(current, handle, &context, &stream));
  if (fill.width == 0 || fill.height == 0) return CUDA_SUCCESS;
  CU_TRY(CheckFill(fill));
  return SubmitWork(context, stream, {nullptr, FillWork{fill}});
}

}  // namespace tandem::soft
