// Entry points: streams and host functions in them.
#include "softgpu/driver/driver.h"
#include "softgpu/driver/submit.h"
#include "src/cuda/driver_api.h"

namespace tandem::soft {
namespace {

CUresult Create(CUstream* handle, unsigned int flags, int priority) {
  std::shared_ptr<Context> context;
  CU_TRY(HealthyContext(&context));
  if (handle == nullptr || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  const StreamKind kind =
      flags == CU_STREAM_NON_BLOCKING ? StreamKind::kNonBlocking : StreamKind::kBlocking;
  auto object = std::make_shared<StreamObject>();
  object->context = context;
  object->stream = std::make_shared<Stream>(context->group, kind, ClampPriority(priority));
  object->flags = flags;
  *handle = TheDriver().streams.Insert(std::move(object));
  return CUDA_SUCCESS;
}

// Its work goes on to the end; only the name is gone.
CUresult Destroy(CUstream handle) {
  CU_TRY(Ready());
  const auto value = reinterpret_cast<uintptr_t>(handle);
  if (value <= CU_STREAM_PER_THREAD_VALUE) return CUDA_ERROR_INVALID_HANDLE;
  const auto object = TheDriver().streams.Take(handle);
  if (!object) return CUDA_ERROR_INVALID_HANDLE;
  DropCapturesOf(object->stream.get());
  return CUDA_SUCCESS;
}

CUresult Find(CUstream handle, std::shared_ptr<Context>* context, std::shared_ptr<Stream>* stream) {
  std::shared_ptr<Context> current;
  CU_TRY(HealthyContext(&current));
  return FindStream(current, handle, context, stream);
}

bool IsHintOfStreams(CUlaunchAttributeID attribute) {
  return attribute == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW ||
         attribute == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY ||
         attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP ||
         attribute == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
}

}  // namespace
}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

CUresult cuStreamCreate(CUstream* stream, unsigned int flags) noexcept {
  return Create(stream, flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned int flags, int priority) noexcept {
  return Create(stream, flags, priority);
}

CUresult cuStreamDestroy(CUstream stream) noexcept {
  return Destroy(stream);
}
CUresult cuStreamDestroy_v2(CUstream stream) noexcept {
  return Destroy(stream);
}

CUresult cuStreamQuery(CUstream handle) noexcept {
  std::shared_ptr<Context> context;
  std::shared_ptr<Stream> stream;
  CU_TRY(Find(handle, &context, &stream));
  CU_TRY(RefuseIfCaptured(*stream));
  const bool idle = TheDriver().scheduler.Pending(stream).empty();
  CU_TRY(context->error());
  return idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamSynchronize(CUstream handle) noexcept {
  std::shared_ptr<Context> context;
  std::shared_ptr<Stream> stream;
  CU_TRY(Find(handle, &context, &stream));
  CU_TRY(RefuseIfCaptured(*stream));
  Scheduler& scheduler = TheDriver().scheduler;
  scheduler.Wait(scheduler.Pending(stream));
  TheDriver().ReleasePoolMemory();
  return context->error();
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int flags) noexcept {
  std::shared_ptr<Context> context;
  std::shared_ptr<Stream> stream;
  CU_TRY(Find(handle, &context, &stream));
  if (flags > CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  const auto event = TheDriver().events.Find(event_handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  bool captured = false;
  CU_TRY(CaptureWait(stream, EventWork{event_handle, event, false}, flags == CU_EVENT_WAIT_EXTERNAL,
                     &captured));
  if (captured) return CUDA_SUCCESS;
  Task task;
  if (event->shared != nullptr) {
    const auto pending = PendingShared(*event, context->group);
    if (!pending) return CUDA_SUCCESS;
    task.after.push_back(*pending);
  } else {
    std::shared_ptr<Event::Record> record;
    CU_TRY(FindRecord(*event, &record));
    if (!record) return CUDA_SUCCESS;  // never recorded: nothing to wait for
    task.after.push_back(record->where);
  }
  TheDriver().scheduler.Submit(stream, std::move(task));
  return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream handle, unsigned int* flags) noexcept {
  std::shared_ptr<Context> context;
  std::shared_ptr<Stream> stream;
  CU_TRY(Find(handle, &context, &stream));
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = stream->kind == StreamKind::kNonBlocking ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) noexcept {
  std::shared_ptr<Context> context;
  std::shared_ptr<Stream> stream;
  CU_TRY(Find(handle, &context, &stream));
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context_handle) noexcept {
  std::shared_ptr<Context> context;
  std::shared_ptr<Stream> stream;
  CU_TRY(Find(handle, &context, &stream));
  if (context_handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context_handle = HandleOf(context);
  return CUDA_SUCCESS;
}

// There are no green contexts.
CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext* context, CUgreenCtx* green) noexcept {
  std::shared_ptr<Context> owner;
  std::shared_ptr<Stream> stream;
  CU_TRY(Find(handle, &owner, &stream));
  if (context == nullptr || green == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = HandleOf(owner);
  *green = nullptr;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice* device) noexcept {
  std::shared_ptr<Context> context;
  std::shared_ptr<Stream> stream;
  CU_TRY(Find(handle, &context, &stream));
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = context->device->ordinal();
  return CUDA_SUCCESS;
}

CUresult cuStreamGetAttribute(CUstream handle, CUlaunchAttributeID attribute,
                              CUlaunchAttributeValue* value) noexcept {
  std::shared_ptr<Context> context;
  std::shared_ptr<Stream> stream;
  CU_TRY(Find(handle, &context, &stream));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUlaunchAttributeValue answer = {};
  if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
    answer.priority = stream->priority;
  } else if (IsHintOfStreams(attribute)) {
    if (attribute == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY) answer.syncPolicy = 1;  // any
    MutexLock lock(stream->hints_mutex);
    const auto hint = stream->hints.find(attribute);
    if (hint != stream->hints.end()) answer = hint->second;
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *value = answer;
  return CUDA_SUCCESS;
}

// A stream has its priority from the start.
CUresult cuStreamSetAttribute(CUstream handle, CUlaunchAttributeID attribute,
                              const CUlaunchAttributeValue* value) noexcept {
  std::shared_ptr<Context> context;
  std::shared_ptr<Stream> stream;
  CU_TRY(Find(handle, &context, &stream));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
    return ClampPriority(value->priority) == stream->priority ? CUDA_SUCCESS
                                                              : CUDA_ERROR_NOT_SUPPORTED;
  }
  if (!IsHintOfStreams(attribute)) return CUDA_ERROR_INVALID_VALUE;
  CU_TRY(CheckAttribute(attribute, *value));
  MutexLock lock(stream->hints_mutex);
  stream->hints[attribute] = *value;
  return CUDA_SUCCESS;
}

CUresult cuStreamCopyAttributes(CUstream to_handle, CUstream from_handle) noexcept {
  std::shared_ptr<Context> to_context, from_context;
  std::shared_ptr<Stream> to, from;
  CU_TRY(Find(to_handle, &to_context, &to));
  CU_TRY(Find(from_handle, &from_context, &from));
  if (to_context != from_context) return CUDA_ERROR_INVALID_VALUE;
  Hints hints;
  {
    MutexLock lock(from->hints_mutex);
    hints = from->hints;
  }
  MutexLock lock(to->hints_mutex);
  to->hints = std::move(hints);
  return CUDA_SUCCESS;
}

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void* data,
                             unsigned int flags) noexcept {
  std::shared_ptr<Context> context;
  std::shared_ptr<Stream> stream;
  CU_TRY(Find(handle, &context, &stream));
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  CU_TRY(RefuseIfCaptured(*stream));
  Task task;
  task.engine = EngineKind::kHost;
  task.always = true;  // a callback is told of the error
  task.run = [=, group = context->group] {
    const HostFunctionScope scope;
    callback(handle, group->error.load(), data);
    return CUDA_SUCCESS;
  };
  TheDriver().scheduler.Submit(stream, std::move(task));
  return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) noexcept {
  std::shared_ptr<Context> context;
  std::shared_ptr<Stream> stream;
  CU_TRY(Find(handle, &context, &stream));
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return SubmitWork(context, stream, {nullptr, HostWork{function, data}});
}
