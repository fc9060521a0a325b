#include "src/shim/gate/work_tracker.h"

#include <algorithm>
#include <ctime>

#include "src/shim/driver/in_context.h"

namespace tandem::shim {
namespace {

constexpr Duration kWindowPause = Microseconds(50);
constexpr Duration kWindowPatience = Milliseconds(200);

// Null, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are values, not objects.
bool IsDefaultStream(CUstream stream) {
  return reinterpret_cast<uintptr_t>(stream) <= CU_STREAM_PER_THREAD_VALUE;
}

bool IsGone(CUresult result) {
  return result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_INVALID_CONTEXT;
}

}  // namespace

bool IsSticky(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_EXTERNAL_DEVICE:
      return true;
    default:
      return false;
  }
}

bool WorkTracker::AddContext(CUcontext context) {
  MutexLock lock(mutex_);
  return Add(context);
}

// A context that another thread destroyed stays current here, and its driver may still tell the
// device. It is none to know: pushed in another thread, the driver frees it under this one.
bool WorkTracker::Add(CUcontext context) {
  if (contexts_.count(context) != 0) return true;
  const InContext scope(real_, context);
  CUdevice device = 0;
  if (scope.result() != CUDA_SUCCESS || real_->cuCtxGetDevice(&device) != CUDA_SUCCESS) {
    return false;
  }
  if (IsGone(AskHealth(context))) {
    probes_.erase(context);
    return false;
  }
  contexts_[context] = device;
  return true;
}

bool WorkTracker::IsOn(CUcontext context, CUdevice device) const {
  const auto found = contexts_.find(context);
  return found != contexts_.end() && found->second == device;
}

void WorkTracker::RemoveContext(CUcontext context) {
  MutexLock lock(mutex_);
  Remove(context);
}

CUcontext WorkTracker::AnyContext(CUdevice device) const {
  MutexLock lock(mutex_);
  for (const auto& [context, its_device] : contexts_) {
    if (its_device == device) return context;
  }
  return nullptr;
}

std::vector<CUcontext> WorkTracker::TakeBroken(CUdevice device) {
  MutexLock lock(mutex_);
  std::vector<CUcontext> broken;
  for (const auto& [context, its_device] : contexts_) {
    if (its_device != device) continue;
    const InContext scope(real_, context);
    if (scope.result() == CUDA_SUCCESS && IsSticky(AskHealth(context))) broken.push_back(context);
  }
  if (!broken.empty()) broken_.store(true, std::memory_order_release);
  for (CUcontext context : broken) Remove(context);
  return broken;
}

CUresult WorkTracker::Health(CUcontext context) {
  MutexLock lock(mutex_);
  const CUresult result = AskHealth(context);
  const bool refused =
      IsSticky(result) || IsGone(result) || result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return refused ? result : CUDA_SUCCESS;
}

CUresult WorkTracker::AskHealth(CUcontext context) {
  CUevent& probe = probes_[context];
  if (probe == nullptr) {
    const CUresult result = real_->cuEventCreate(&probe, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) return result;
  }
  return real_->cuEventQuery(probe);
}

void WorkTracker::Remove(CUcontext context) {
  const auto of_context = [context](const Marker& marker) { return marker.context == context; };
  contexts_.erase(context);
  for (auto& [key, watched] : watched_) std::erase_if(watched.pending, of_context);
  std::erase_if(orphaned_, of_context);
  std::erase_if(streams_, [context](const auto& entry) { return entry.second == context; });
  std::erase_if(in_flight_, [context](const auto& entry) { return entry.first.first == context; });
  probes_.erase(context);
  events_.RemoveContext(context);
  timed_events_.RemoveContext(context);
  Invalidate();
}

// Null where `stream` is none: the call that is about to use it says so.
CUcontext WorkTracker::ContextOf(CUstream stream) const {
  CUcontext context = nullptr;
  if (IsDefaultStream(stream)) {
    real_->cuCtxGetCurrent(&context);
  } else if (real_->cuStreamGetCtx == nullptr ||
             real_->cuStreamGetCtx(stream, &context) != CUDA_SUCCESS) {
    return nullptr;
  }
  return context;
}

void WorkTracker::Mark(ThreadSlot* slot, CUstream stream) {
  const CUcontext context = ContextOf(stream);
  if (context == nullptr) return;
  MutexLock lock(mutex_);
  if (!Add(context)) return;
  if (IsDefaultStream(stream)) {
    default_streams_ = true;
  } else {
    streams_[stream] = context;
  }
  slot->marked_stream = stream;
  slot->marked_generation = generation.load(std::memory_order_relaxed);
}

CUresult WorkTracker::Record(CUcontext context, CUstream stream, std::vector<Marker>* markers) {
  Marker marker;
  const CUresult result = events_.Record(context, stream, &marker);
  if (result == CUDA_SUCCESS) markers->push_back(marker);
  return result;
}

CUresult WorkTracker::DestroyStream(CUstream stream, CUresult (*destroy)(CUstream)) {
  MutexLock lock(mutex_);
  const auto found = streams_.find(stream);
  if (found != streams_.end()) {
    Record(found->second, stream, &orphaned_);
    streams_.erase(found);
  }
  // While no session waits for the GPU the agent does not poll: a program may go on like this for
  // ever.
  std::erase_if(orphaned_, [this](const Marker& marker) REQUIRES_LOCK(mutex_) {
    if (events_.Query(marker) != CUDA_SUCCESS) return false;
    events_.Return(marker);
    return true;
  });
  for (auto queue = in_flight_.begin(); queue != in_flight_.end();) {
    const auto next = std::next(queue);
    if (queue->first.second == stream) {
      queue->second.ReturnEvents(&timed_events_);
      in_flight_.erase(queue);
    }
    queue = next;
  }
  // The handle may be given out again: no mark of it may remain.
  Invalidate();
  return destroy(stream);
}

bool WorkTracker::Admit(const StreamKey& key, bool anyway) {
  const Duration window{window_ns_.load(std::memory_order_relaxed)};
  MutexLock lock(mutex_);
  if (!IsDefaultStream(key.second) && streams_.count(key.second) == 0) return true;  // not used yet
  InFlight& queue = in_flight_.try_emplace(key, key.first).first->second;
  if (queue.Admit(&timed_events_, key.second, window)) return true;
  if (anyway) queue.Add();
  return anyway;
}

void WorkTracker::AwaitWindow(const Gate& gate, CUstream stream) {
  const CUcontext context = ContextOf(stream);
  if (context == nullptr) return;
  const Instant deadline = MonotonicNow() + kWindowPatience;
  const timespec pause{0, kWindowPause.ns};
  while (gate.metered() && !Admit({context, stream}, MonotonicNow() >= deadline)) {
    nanosleep(&pause, nullptr);
  }
}

CUresult WorkTracker::Begin(CUdevice device, Watch watch) {
  MutexLock lock(mutex_);
  Watched& watched = watched_[{device, watch}];
  // What stands behind less than the new events will is of no use any more.
  for (const Marker& marker : watched.pending) events_.Return(marker);
  watched.pending.clear();
  watched.legacy_due = default_streams_;
  return RecordAll(device, false, &watched.pending);
}

CUresult WorkTracker::RecordAll(CUdevice device, bool legacy, std::vector<Marker>* markers) {
  CUresult first_error = CUDA_SUCCESS;
  std::vector<CUcontext> gone;
  const auto record = [&](CUcontext context, CUstream stream) REQUIRES_LOCK(mutex_) {
    const CUresult result = Record(context, stream, markers);
    if (result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED) {
      gone.push_back(context);  // by a call that we do not know, and all its work with it
    } else if (first_error == CUDA_SUCCESS && !(IsSticky(result) && !IsOn(context, device))) {
      first_error = result;
    }
  };
  if (legacy) {
    for (const auto& [context, its_device] : contexts_) record(context, nullptr);
  } else {
    for (const auto& [stream, context] : streams_) record(context, stream);
  }
  for (CUcontext context : gone) Remove(context);
  return first_error;
}

CUresult WorkTracker::PollAll(CUdevice device, std::vector<Marker>* markers) {
  CUresult result = CUDA_SUCCESS;
  std::erase_if(*markers, [&](const Marker& marker) REQUIRES_LOCK(mutex_) {
    if (result != CUDA_SUCCESS) return false;
    result = events_.Query(marker);
    if (IsSticky(result) && !IsOn(marker.context, device)) result = CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) events_.Return(marker);
    return result == CUDA_SUCCESS;
  });
  return result;
}

CUresult WorkTracker::Poll(CUdevice device, Watch watch) {
  MutexLock lock(mutex_);
  Watched& watched = watched_[{device, watch}];
  CUresult result = PollAll(device, &orphaned_);
  if (result == CUDA_SUCCESS) result = PollAll(device, &watched.pending);
  if (result != CUDA_SUCCESS || !watched.legacy_due) return result;
  result = RecordAll(device, true, &watched.pending);
  if (result != CUDA_SUCCESS) return result;  // and from the beginning the next time
  watched.legacy_due = false;
  return PollAll(device, &watched.pending);
}

void WorkTracker::Forget() {
  MutexLock lock(mutex_);
  streams_.clear();
  default_streams_ = false;
  for (auto& [key, queue] : in_flight_) queue.ReturnEvents(&timed_events_);
  Invalidate();
}

}  // namespace tandem::shim
