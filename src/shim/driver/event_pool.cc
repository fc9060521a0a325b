#include "src/shim/driver/event_pool.h"

#include <algorithm>

#include "src/shim/driver/capture_mode.h"
#include "src/shim/driver/in_context.h"

namespace tandem::shim {

CUresult EventPool::Record(CUcontext context, CUstream stream, Marker* marker) {
  *marker = Marker{nullptr, context};
  const InContext scope(real_, context);
  CUresult result = scope.result();
  if (result != CUDA_SUCCESS) return result;
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  if (real_->cuStreamIsCapturing != nullptr) {
    result = real_->cuStreamIsCapturing(stream, &capture);
  }
  if (result == CUDA_SUCCESS && capture != CU_STREAM_CAPTURE_STATUS_NONE) {
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (result == CUDA_SUCCESS) {
    const auto spare = std::find_if(spare_.begin(), spare_.end(), [context](const Marker& entry) {
      return entry.context == context;
    });
    if (spare != spare_.end()) {
      marker->event = spare->event;
      spare_.erase(spare);
    } else {
      result = real_->cuEventCreate(&marker->event, static_cast<unsigned int>(kind_));
    }
    if (result == CUDA_SUCCESS) result = real_->cuEventRecord(marker->event, stream);
    if (result != CUDA_SUCCESS && marker->event != nullptr) Return(*marker);
  }
  return result;
}

CUresult EventPool::Query(const Marker& marker) const {
  const RelaxedCapture relaxed(real_);
  return real_->cuEventQuery(marker.event);
}

std::optional<Duration> EventPool::Between(const Marker& earlier, const Marker& later) const {
  const RelaxedCapture relaxed(real_);
  float milliseconds = 0;
  if (real_->cuEventElapsedTime == nullptr ||
      real_->cuEventElapsedTime(&milliseconds, earlier.event, later.event) != CUDA_SUCCESS) {
    return std::nullopt;
  }
  return Duration(static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6));
}

void EventPool::Return(const Marker& marker) {
  spare_.push_back(marker);
}

void EventPool::RemoveContext(CUcontext context) {
  std::erase_if(spare_, [context](const Marker& entry) { return entry.context == context; });
}

}  // namespace tandem::shim
