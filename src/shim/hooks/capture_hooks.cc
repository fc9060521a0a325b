// Hooks of driver_api.def's OWN rows by which streams come to be captured, or are no longer.
// Captures are counted: as long as there is none, an allocation need not ask the driver whether one
// forbids it. And none begins just where the tracker is about to put an event.
#include "src/shim/hooks/gated_call.h"

namespace tandem::shim {
namespace {

bool IsCaptured(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return Call(Real().cuStreamIsCapturing, stream, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

template <typename Begin>
CUresult BeginCapture(Begin begin) {
  WorkTracker* const tracker = process_tracker.load(std::memory_order_acquire);
  if (tracker == nullptr) return begin();
  tracker->OnCaptureBegun();  // beforehand: no allocation may miss it
  const CUresult result = tracker->JoinCapture(begin);
  if (result != CUDA_SUCCESS) tracker->OnCaptureEnded();
  return result;
}

// For an event of a capture: then the stream joins it.
template <typename Wait>
CUresult WaitForEvent(CUstream stream, Wait wait) {
  const GatedCall call(stream);
  if (call.refused()) return kRefusal;
  WorkTracker* const tracker = process_tracker.load(std::memory_order_acquire);
  return tracker != nullptr && tracker->Capturing() ? tracker->JoinCapture(wait) : wait();
}

// Some errors end it, others leave it as it was.
template <typename End>
CUresult EndCapture(CUstream stream, End end) {
  WorkTracker* const tracker = process_tracker.load(std::memory_order_acquire);
  const bool captured = tracker != nullptr && IsCaptured(stream);
  const CUresult result = end();
  if (captured && !IsCaptured(stream)) tracker->OnCaptureEnded();
  return result;
}

CUstream PerThread(CUstream stream) {
  return stream == nullptr ? reinterpret_cast<CUstream>(CU_STREAM_PER_THREAD_VALUE) : stream;
}

}  // namespace
}  // namespace tandem::shim

using namespace tandem::shim;

extern "C" {

CUresult cuStreamBeginCapture(CUstream stream) noexcept {
  return BeginCapture([&] { return Call(Real().cuStreamBeginCapture, stream); });
}

CUresult cuStreamBeginCapture_ptsz(CUstream stream) noexcept {
  return BeginCapture([&] { return Call(Real().cuStreamBeginCapture_ptsz, stream); });
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) noexcept {
  return BeginCapture([&] { return Call(Real().cuStreamBeginCapture_v2, stream, mode); });
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode) noexcept {
  return BeginCapture([&] { return Call(Real().cuStreamBeginCapture_v2_ptsz, stream, mode); });
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                     const CUgraphNode* dependencies, const CUgraphEdgeData* edges,
                                     size_t count, CUstreamCaptureMode mode) noexcept {
  return BeginCapture([&] {
    return Call(Real().cuStreamBeginCaptureToGraph, stream, graph, dependencies, edges, count,
                mode);
  });
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph,
                                          const CUgraphNode* dependencies,
                                          const CUgraphEdgeData* edges, size_t count,
                                          CUstreamCaptureMode mode) noexcept {
  return BeginCapture([&] {
    return Call(Real().cuStreamBeginCaptureToGraph_ptsz, stream, graph, dependencies, edges, count,
                mode);
  });
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) noexcept {
  return WaitForEvent(stream, [=] { return Call(Real().cuStreamWaitEvent, stream, event, flags); });
}

CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned int flags) noexcept {
  return WaitForEvent(PerThread(stream),
                      [=] { return Call(Real().cuStreamWaitEvent_ptsz, stream, event, flags); });
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) noexcept {
  return EndCapture(stream, [&] { return Call(Real().cuStreamEndCapture, stream, graph); });
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph* graph) noexcept {
  return EndCapture(PerThread(stream),
                    [&] { return Call(Real().cuStreamEndCapture_ptsz, stream, graph); });
}

}  // extern "C"
