#include "softgpu/driver/submit.h"

#include "softgpu/driver/driver.h"

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

// Page-locked or managed memory, which the host can look at without any call.
bool IsOfHost(uint64_t address) {
  Driver& driver = TheDriver();
  MutexLock lock(driver.memory->mutex());
  const auto found = driver.memory->Find(address);
  if (!found) return false;
  return Memory::IsOfHost(*found) || found->managed != nullptr;
}

// Of both sides; false also if one has no address.
bool Extents(const Copy& copy, uint64_t* to, uint64_t* from) {
  return copy.to.address != 0 && copy.from.address != 0 &&
         Extent(copy.to, copy.width, copy.height, copy.depth, to) &&
         Extent(copy.from, copy.width, copy.height, copy.depth, from);
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
  shown.WidthInBytes = copy.width;
  shown.Height = copy.height;
  shown.Depth = copy.depth;
  // A single row has no pitch, and may be longer than one can be.
  if (copy.height == 1 && copy.depth == 1) return shown;
  shown.srcPitch = copy.from.pitch;
  shown.dstPitch = copy.to.pitch;
  shown.srcHeight = copy.from.pitch == 0 ? 0 : copy.from.slice / copy.from.pitch;
  shown.dstHeight = copy.to.pitch == 0 ? 0 : copy.to.slice / copy.to.pitch;
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
  uint64_t to_extent = 0, from_extent = 0;
  if (!Extents(copy, &to_extent, &from_extent)) return CUDA_ERROR_INVALID_VALUE;
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
  return CUDA_SUCCESS;
}

CUresult SubmitCopy(CUstream handle, Blocking blocking, const Copy& copy, bool to_device,
                    bool from_device) {
  CopyWork work{{}, copy, to_device, from_device};
  if (copy.width > 0 && copy.height > 0) work.shown = Shown(copy, to_device, from_device);
  return SubmitCopy(handle, blocking, work);
}

CUresult SubmitCopy(CUstream handle, Blocking blocking, const CopyWork& work) {
  const Copy& copy = work.copy;
  std::shared_ptr<Context> current, context;
  std::shared_ptr<Stream> stream;
  CU_TRY(HealthyContext(&current));
  CU_TRY(FindStream(current, handle, &context, &stream));
  if (copy.width == 0 || copy.height == 0 || copy.depth == 0) return CUDA_SUCCESS;
  CU_TRY(CheckCopy(copy, work.to_device, work.from_device));
  if (TheDriver().faults->Due(kFailCopy)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (blocking == Blocking::kYes) {
    CU_TRY(RefuseIfCaptured(*stream));
    CU_TRY(RefuseUnsafe());
  }
  return SubmitChecked(context, stream, blocking, work);
}

CUresult SubmitChecked(const std::shared_ptr<Context>& context,
                       const std::shared_ptr<Stream>& stream, Blocking blocking,
                       const CopyWork& work) {
  const Copy& copy = work.copy;
  const bool to_device = work.to_device, from_device = work.from_device;
  Memory& memory = *TheDriver().memory;
  uint64_t to_extent = 0, from_extent = 0;
  if (!Extents(copy, &to_extent, &from_extent)) return CUDA_ERROR_INVALID_VALUE;
  const bool pinned =
      (to_device || memory.IsPinned(copy.to.address, to_extent)) &&
      (from_device || work.aside != nullptr || memory.IsPinned(copy.from.address, from_extent));
  const bool inside = to_device && from_device;
  const bool wait = !pinned || (blocking == Blocking::kYes && !inside) ||
                    memory.IsSynchronous(copy.to.address) ||
                    memory.IsSynchronous(copy.from.address);
  std::optional<Dependency> submitted;
  CU_TRY(SubmitWork(context, stream, {nullptr, work}, &submitted));
  if (!wait || !submitted) return CUDA_SUCCESS;
  TheDriver().scheduler.Wait({*submitted});
  return context->error();
}

CUresult CheckFill(const Fill& fill) {
  uint64_t extent = 0;
  if (fill.to.address % fill.element_bytes != 0 ||
      !Extent(fill.to, fill.width, fill.height, 1, &extent)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return TheDriver().memory->Usable(fill.to.address, extent, Access::kReadWrite)
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

CUresult SubmitFill(CUstream handle, Blocking blocking, const Fill& fill) {
  std::shared_ptr<Context> current, context;
  std::shared_ptr<Stream> stream;
  CU_TRY(HealthyContext(&current));
  CU_TRY(FindStream(current, handle, &context, &stream));
  if (fill.width == 0 || fill.height == 0) return CUDA_SUCCESS;
  CU_TRY(CheckFill(fill));
  std::optional<Dependency> submitted;
  CU_TRY(SubmitWork(context, stream, {nullptr, FillWork{fill}}, &submitted));
  const bool wait = (blocking == Blocking::kYes && IsOfHost(fill.to.address)) ||
                    TheDriver().memory->IsSynchronous(fill.to.address);
  if (!wait || !submitted) return CUDA_SUCCESS;
  TheDriver().scheduler.Wait({*submitted});
  return context->error();
}

}  // namespace tandem::soft
