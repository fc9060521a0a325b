// Entry points: events.
#include "softgpu/driver/driver.h"
#include "src/cuda/driver_api.h"

namespace tandem::soft {
namespace {

constexpr unsigned int kEventFlags =
    CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

CUresult Destroy(CUevent handle) {
  CU_TRY(Ready());
  return TheDriver().events.Take(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult Find(CUevent handle, std::shared_ptr<Event>* event) {
  CU_TRY(Ready());
  *event = TheDriver().events.Find(handle);
  if (*event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return (*event)->context->error();
}

// Such an event has no time: when it was reached is never asked.
void RecordShared(Event& event, const std::shared_ptr<Stream>& stream) {
  event.set_latest(nullptr);
  event.shared->Record([&](const IpcEvent::Mark& mark, std::vector<Dependency> after) {
    Task task;
    task.after = std::move(after);
    task.always = true;  // also when the context is broken: others wait
    task.run = [shared = event.shared, mark] {
      shared->Reach(mark);
      return CUDA_SUCCESS;
    };
    return TheDriver().scheduler.Submit(stream, std::move(task));
  });
}

bool Reached(const Event& event, const std::shared_ptr<Event::Record>& record) {
  if (event.shared == nullptr) {
    return !record || TheDriver().scheduler.Done({record->where});
  }
  const auto mark = event.shared->Latest();
  return !mark || event.shared->Reached(*mark) || event.shared->Abandoned(*mark);
}

// Nothing if it is reached; for one of another process, something that comes when it is.
std::optional<Dependency> Pending(const Event& event,
                                  const std::shared_ptr<Event::Record>& record) {
  if (event.shared == nullptr) {
    return record ? std::optional(record->where) : std::nullopt;
  }
  return PendingShared(event, event.context->group);
}

CUresult Record(CUevent handle, CUstream stream_handle, bool external) {
  std::shared_ptr<Context> current, context;
  std::shared_ptr<Stream> stream;
  std::shared_ptr<Event> event;
  CU_TRY(HealthyContext(&current));
  CU_TRY(FindStream(current, stream_handle, &context, &stream));
  CU_TRY(Find(handle, &event));
  if (event->context != context) return CUDA_ERROR_INVALID_HANDLE;
  bool captured = false;
  CU_TRY(CaptureRecord(stream, EventWork{handle, event, true}, external, &captured));
  if (captured) return CUDA_SUCCESS;
  if (event->shared != nullptr) {
    RecordShared(*event, stream);
    return CUDA_SUCCESS;
  }
  auto record = std::make_shared<Event::Record>();
  Task task;
  // Not the record itself: it holds the stream, whose queue holds the task.
  task.run = [weak = std::weak_ptr<Event::Record>(record)] {
    if (const auto reached = weak.lock()) reached->time_ns.store(TaskTime::cursor().ns);
    return CUDA_SUCCESS;
  };
  record->where = TheDriver().scheduler.Submit(stream, std::move(task));
  event->set_latest(std::move(record));
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuEventCreate(CUevent* handle, unsigned int flags) noexcept {
  std::shared_ptr<Context> context;
  CU_TRY(HealthyContext(&context));
  if (handle == nullptr || (flags & ~kEventFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  const bool timed = (flags & CU_EVENT_DISABLE_TIMING) == 0;
  std::shared_ptr<IpcEvent> shared;
  if ((flags & CU_EVENT_INTERPROCESS) != 0) {
    if (timed) return CUDA_ERROR_INVALID_VALUE;
    shared = IpcEvent::Create(&context->device->shared(), context->device->uuid());
    if (shared == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = TheDriver().events.Insert(std::make_shared<Event>(context, flags, std::move(shared)));
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) noexcept {
  return Destroy(event);
}
CUresult cuEventDestroy_v2(CUevent event) noexcept {
  return Destroy(event);
}

CUresult cuEventRecord(CUevent event, CUstream stream) noexcept {
  return Record(event, stream, false);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) noexcept {
  if (flags > CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  return Record(event, stream, flags == CU_EVENT_RECORD_EXTERNAL);
}

CUresult cuEventQuery(CUevent handle) noexcept {
  std::shared_ptr<Event> event;
  std::shared_ptr<Event::Record> record;
  CU_TRY(Find(handle, &event));
  CU_TRY(FindRecord(*event, &record));
  CU_TRY(RefuseUnsafe());
  const bool reached = Reached(*event, record);
  CU_TRY(event->context->error());
  return reached ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent handle) noexcept {
  std::shared_ptr<Event> event;
  std::shared_ptr<Event::Record> record;
  CU_TRY(Find(handle, &event));
  CU_TRY(FindRecord(*event, &record));
  CU_TRY(RefuseUnsafe());
  if (const auto pending = Pending(*event, record)) TheDriver().scheduler.Wait({*pending});
  TheDriver().ReleasePoolMemory();
  return event->context->error();
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start_handle,
                            CUevent end_handle) noexcept {
  std::shared_ptr<Event> start, end;
  CU_TRY(Find(start_handle, &start));
  CU_TRY(Find(end_handle, &end));
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Event::Record> first, last;
  CU_TRY(FindRecord(*start, &first));
  CU_TRY(FindRecord(*end, &last));
  if (((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0 || !first || !last) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (!TheDriver().scheduler.Done({first->where, last->where})) return CUDA_ERROR_NOT_READY;
  const int64_t ns = last->time_ns.load() - first->time_ns.load();
  *milliseconds = static_cast<float>(static_cast<double>(ns) * 1e-6);
  return CUDA_SUCCESS;
}

// The form of CUDA 12.8, which tells apart more errors on devices that have more ways to fail.
CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) noexcept {
  return cuEventElapsedTime(milliseconds, start, end);
}
