// Entry points: stream capture.
#include <algorithm>

#include "softgpu/api/api_graph.h"
#include "softgpu/driver/driver.h"
#include "src/cuda/driver_api.h"

namespace tandem::soft {
namespace {

CUresult Find(CUstream handle, std::shared_ptr<Stream>* stream) {
  std::shared_ptr<Context> current, context;
  CU_TRY(HealthyContext(&current));
  return FindStream(current, handle, &context, stream);
}

bool ValidMode(CUstreamCaptureMode mode) {
  return mode >= CU_STREAM_CAPTURE_MODE_GLOBAL && mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
}

// Into a graph that there is, or, `into` null, a new one.
CUresult Begin(CUstream handle, CUstreamCaptureMode mode, CUgraph into,
               const CUgraphNode* dependencies, size_t count) {
  std::shared_ptr<Stream> stream;
  CU_TRY(Find(handle, &stream));
  if (!ValidMode(mode)) return CUDA_ERROR_INVALID_VALUE;
  if (stream->kind == StreamKind::kLegacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  Driver& driver = TheDriver();
  MutexLock lock(driver.graphs_mutex);
  if (driver.captures.Of(stream.get()) != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  std::vector<GraphNode*> next;
  std::shared_ptr<Graph> graph;
  if (into != nullptr) {
    CU_TRY(FindGraph(into, &graph));
    if (graph->capturing) return CUDA_ERROR_INVALID_VALUE;
    CU_TRY(FindNodes(*graph, dependencies, count, &next));
  } else {
    graph = Graph::New(true);
  }
  driver.captures.Begin(stream, mode, graph, std::move(next))->own_graph = into == nullptr;
  return CUDA_SUCCESS;
}

// The state of a stream's capture; none is a state too.
CUresult StatusOf(const Stream& stream, Capture** capture, Capture::Captured** captured,
                  CUstreamCaptureStatus* status) REQUIRES_LOCK(TheDriver().graphs_mutex) {
  Captures& captures = TheDriver().captures;
  if (stream.kind == StreamKind::kLegacy && captures.BlockingIn(stream.group.get()) != nullptr) {
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  *capture = captures.Of(&stream, captured);
  *status = *capture == nullptr ? CU_STREAM_CAPTURE_STATUS_NONE
            : (*capture)->valid ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  return CUDA_SUCCESS;
}

CUresult UpdateDependencies(CUstream handle, const CUgraphNode* nodes, size_t count,
                            unsigned int flags) {
  std::shared_ptr<Stream> stream;
  CU_TRY(Find(handle, &stream));
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
  Driver& driver = TheDriver();
  MutexLock lock(driver.graphs_mutex);
  Capture::Captured* one = nullptr;
  Capture* capture = driver.captures.Of(stream.get(), &one);
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (!capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  std::vector<GraphNode*> named;
  CU_TRY(FindNodes(*capture->graph, nodes, count, &named));
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) one->next.clear();
  for (GraphNode* node : named) {
    if (std::ranges::find(one->next, node) == one->next.end()) one->next.push_back(node);
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace tandem::soft

using namespace tandem;        // NOLINT: entry points live outside every namespace
using namespace tandem::soft;  // NOLINT

// It is older than the modes, and refuses nothing that came later.
CUresult cuStreamBeginCapture(CUstream stream) noexcept {
  return Begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED, nullptr, nullptr, 0);
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) noexcept {
  return Begin(stream, mode, nullptr, nullptr, 0);
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                     const CUgraphNode* dependencies, const CUgraphEdgeData* edges,
                                     size_t count, CUstreamCaptureMode mode) noexcept {
  CU_TRY(Ready());
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CU_TRY(CheckEdges(edges, count));
  return Begin(stream, mode, graph, dependencies, count);
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) noexcept {
  std::shared_ptr<Stream> stream;
  CU_TRY(Find(handle, &stream));
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Driver& driver = TheDriver();
  MutexLock lock(driver.graphs_mutex);
  Capture* capture = driver.captures.Of(stream.get());
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->streams.front().stream != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
      capture->thread != std::this_thread::get_id()) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  const CUresult result = !capture->valid      ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                          : !capture->Joined() ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                                               : CUDA_SUCCESS;
  *graph = result == CUDA_SUCCESS ? capture->graph->handle() : nullptr;
  if (result != CUDA_SUCCESS && capture->own_graph) Graph::Forget(capture->graph);
  driver.captures.End(capture);
  return result;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) noexcept {
  std::shared_ptr<Stream> stream;
  CU_TRY(Find(handle, &stream));
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(TheDriver().graphs_mutex);
  Capture* capture = nullptr;
  return StatusOf(*stream, &capture, nullptr, status);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** dependencies,
                                   const CUgraphEdgeData** edges, size_t* count) noexcept {
  if (edges != nullptr) *edges = nullptr;  // no edge here carries more than order
  return cuStreamGetCaptureInfo_v2(handle, status, id, graph, dependencies, count);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** dependencies,
                                   size_t* count) noexcept {
  std::shared_ptr<Stream> stream;
  CU_TRY(Find(handle, &stream));
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MutexLock lock(TheDriver().graphs_mutex);
  Capture* capture = nullptr;
  Capture::Captured* one = nullptr;
  CU_TRY(StatusOf(*stream, &capture, &one, status));
  if (capture == nullptr || !capture->valid) return CUDA_SUCCESS;
  one->shown.clear();
  for (const GraphNode* node : one->next) one->shown.push_back(node->handle);
  if (id != nullptr) *id = capture->id;
  if (graph != nullptr) *graph = capture->graph->handle();
  if (dependencies != nullptr) *dependencies = one->shown.data();
  if (count != nullptr) *count = one->shown.size();
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status,
                                cuuint64_t* id) noexcept {
  return cuStreamGetCaptureInfo_v2(stream, status, id, nullptr, nullptr, nullptr);
}

CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode* nodes, size_t count,
                                           unsigned int flags) noexcept {
  return UpdateDependencies(stream, nodes, count, flags);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode* nodes,
                                              const CUgraphEdgeData* edges, size_t count,
                                              unsigned int flags) noexcept {
  CU_TRY(CheckEdges(edges, count));
  return UpdateDependencies(stream, nodes, count, flags);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) noexcept {
  CU_TRY(Ready());
  if (mode == nullptr || !ValidMode(*mode)) return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, ThreadCaptureMode());
  return CUDA_SUCCESS;
}
