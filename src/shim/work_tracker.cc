#include "src/shim/work_tracker.h"

#include <algorithm>

namespace tandem::shim {
namespace {

// Null, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are values, not objects.
bool IsDefaultStream(CUstream stream) {
  return reinterpret_cast<uintptr_t>(stream) <= CU_STREAM_PER_THREAD_VALUE;
}

}  // namespace

bool IsSticky(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_LAUNCH_FAILED:
      return true;
    default: {
      // Without a name in our tables: uncorrectable ECC, stack error, invalid PC, and the
      // contained and external device errors.
      const int code = static_cast<int>(result);
      return code == 214 || code == 714 || code == 718 || code == 721 || code == 722 || code == 724;
    }
  }
}

void WorkTracker::AddContext(CUcontext context) {
  MutexLock lock(mutex_);
  if (std::find(contexts_.begin(), contexts_.end(), context) == contexts_.end()) {
    contexts_.push_back(context);
  }
}

void WorkTracker::RemoveContext(CUcontext context) {
  MutexLock lock(mutex_);
  const auto of_context = [context](const Pending& pending) { return pending.context == context; };
  std::erase(contexts_, context);
  std::erase_if(pending_, of_context);
  std::erase_if(spare_, of_context);
  std::erase_if(streams_, [context](const auto& entry) { return entry.second == context; });
  generation_.fetch_add(1, std::memory_order_relaxed);
}

void WorkTracker::Mark(ThreadSlot* slot, CUstream stream) {
  CUcontext context = nullptr;
  if (IsDefaultStream(stream)) {
    real_->cuCtxGetCurrent(&context);
  } else if (real_->cuStreamGetCtx == nullptr ||
             real_->cuStreamGetCtx(stream, &context) != CUDA_SUCCESS) {
    return;  // not a stream: the call that follows says so
  }
  if (context != nullptr) AddContext(context);
  MutexLock lock(mutex_);
  if (IsDefaultStream(stream)) {
    default_streams_ = true;
  } else {
    streams_[stream] = context;
  }
  slot->marked_stream = stream;
  slot->marked_generation = generation_.load(std::memory_order_relaxed);
}

CUresult WorkTracker::Record(CUcontext context, CUstream stream) {
  CUresult result = real_->cuCtxPushCurrent_v2(context);
  if (result != CUDA_SUCCESS) return result;
  Pending pending{nullptr, context};
  const auto spare = std::find_if(spare_.begin(), spare_.end(), [context](const Pending& entry) {
    return entry.context == context;
  });
  if (spare != spare_.end()) {
    pending = *spare;
    spare_.erase(spare);
  } else {
    result = real_->cuEventCreate(&pending.event, CU_EVENT_DISABLE_TIMING);
  }
  if (result == CUDA_SUCCESS) {
    result = real_->cuEventRecord(pending.event, stream);
    (result == CUDA_SUCCESS ? pending_ : spare_).push_back(pending);
  }
  CUcontext popped = nullptr;
  real_->cuCtxPopCurrent_v2(&popped);
  return result;
}

void WorkTracker::Recycle(const Pending& pending) {
  spare_.push_back(pending);
}

CUresult WorkTracker::DestroyStream(CUstream stream, CUresult (*destroy)(CUstream)) {
  MutexLock lock(mutex_);
  const auto found = streams_.find(stream);
  if (found != streams_.end()) {
    Record(found->second, stream);
    streams_.erase(found);
  }
  // The handle may be given out again: nobody may believe to have marked it.
  generation_.fetch_add(1, std::memory_order_relaxed);
  return destroy(stream);
}

CUresult WorkTracker::Begin() {
  MutexLock lock(mutex_);
  CUresult first_error = CUDA_SUCCESS;
  const auto note = [&first_error](CUresult result) {
    if (first_error == CUDA_SUCCESS) first_error = result;
  };
  for (const auto& [stream, context] : streams_) note(Record(context, stream));
  if (default_streams_) {
    for (CUcontext context : contexts_) note(Record(context, nullptr));
  }
  return first_error;
}

CUresult WorkTracker::Poll() {
  MutexLock lock(mutex_);
  while (!pending_.empty()) {
    const CUresult result = real_->cuEventQuery(pending_.back().event);
    if (result != CUDA_SUCCESS) return result;
    Recycle(pending_.back());
    pending_.pop_back();
  }
  return CUDA_SUCCESS;
}

void WorkTracker::Forget() {
  MutexLock lock(mutex_);
  streams_.clear();
  default_streams_ = false;
  generation_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace tandem::shim
