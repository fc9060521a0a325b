#include "softgpu/driver/capture.h"

#include <algorithm>
#include <unordered_set>

#include "softgpu/driver/driver.h"
#include "softgpu/driver/graph_params.h"

namespace tandem::soft {
namespace {

bool Idle() {
  return TheDriver().capturing.load(std::memory_order_relaxed) == 0;
}

CUresult Invalidate(Capture* capture, CUresult error) {
  if (capture != nullptr) capture->valid = false;
  return error;
}

void AddTo(std::vector<GraphNode*>* nodes, const std::vector<GraphNode*>& more) {
  for (GraphNode* node : more) {
    if (std::ranges::find(*nodes, node) == nodes->end()) nodes->push_back(node);
  }
}

void AddNode(Capture& capture, Capture::Captured& captured, const Work& work) {
  GraphNode* node = capture.graph->Add(work, captured.next);
  captured.next = {node};
}

// The legacy stream waits for blocking ones, which a captured one cannot be waited for.
CUresult CheckLegacy(Captures& captures, const Stream& stream) {
  if (stream.kind != StreamKind::kLegacy) return CUDA_SUCCESS;
  Capture* capture = captures.BlockingIn(stream.group.get());
  if (capture == nullptr) return CUDA_SUCCESS;
  return Invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

// The capture that a call on the stream belongs to; null, with success, if none.
CUresult FindCapture(Captures& captures, const Stream& stream, Capture** capture,
                     Capture::Captured** captured) {
  CU_TRY(CheckLegacy(captures, stream));
  *capture = captures.Of(&stream, captured);
  if (*capture != nullptr && !(*capture)->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  return CUDA_SUCCESS;
}

}  // namespace

CUstreamCaptureMode& ThreadCaptureMode() {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

bool Capture::Joined(const Stream* of) const {
  std::unordered_set<const GraphNode*> seen;
  std::vector<const GraphNode*> open(streams.front().next.begin(), streams.front().next.end());
  while (!open.empty()) {
    const GraphNode* node = open.back();
    open.pop_back();
    if (seen.insert(node).second) open.insert(open.end(), node->before.begin(), node->before.end());
  }
  return std::ranges::all_of(streams, [&](const Captured& one) {
    if (of != nullptr && one.stream.get() != of) return true;
    return std::ranges::all_of(one.next,
                               [&](const GraphNode* node) { return seen.contains(node); });
  });
}

Capture* Captures::Of(const Stream* stream, Capture::Captured** captured) {
  for (const auto& capture : all_) {
    for (Capture::Captured& one : capture->streams) {
      if (one.stream.get() != stream) continue;
      if (captured != nullptr) *captured = &one;
      return capture.get();
    }
  }
  return nullptr;
}

Capture* Captures::Begin(const std::shared_ptr<Stream>& stream, CUstreamCaptureMode mode,
                         std::shared_ptr<Graph> graph, std::vector<GraphNode*> next) {
  auto capture = std::make_shared<Capture>();
  capture->id = NewHandle();
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->graph = std::move(graph);
  capture->graph->capturing = true;
  capture->streams.push_back({stream, std::move(next), {}});
  all_.push_back(capture);
  TheDriver().capturing.store(static_cast<int>(all_.size()));
  return capture.get();
}

void Captures::End(Capture* capture) {
  capture->ended = true;
  capture->graph->capturing = false;
  capture->graph = nullptr;
  capture->streams.clear();
  std::erase_if(all_, [&](const auto& other) { return other.get() == capture; });
  TheDriver().capturing.store(static_cast<int>(all_.size()));
}

Capture* Captures::BlockingIn(const StreamGroup* group) {
  for (const auto& capture : all_) {
    for (const Capture::Captured& one : capture->streams) {
      if (one.stream->group.get() == group && one.stream->kind == StreamKind::kBlocking) {
        return capture.get();
      }
    }
  }
  return nullptr;
}

CUresult CaptureWork(const std::shared_ptr<Stream>& stream, const Work& work, bool* captured) {
  *captured = false;
  if (Idle()) return CUDA_SUCCESS;
  Driver& driver = TheDriver();
  MutexLock lock(driver.graphs_mutex);
  Capture* capture = nullptr;
  Capture::Captured* one = nullptr;
  CU_TRY(FindCapture(driver.captures, *stream, &capture, &one));
  if (capture == nullptr) return CUDA_SUCCESS;
  CU_TRY(CheckMemory(*capture->graph, work));
  AddNode(*capture, *one, work);
  *captured = true;
  return CUDA_SUCCESS;
}

CUresult CaptureRecord(const std::shared_ptr<Stream>& stream, const EventWork& work, bool external,
                       bool* captured) {
  *captured = false;
  if (Idle()) return external ? CUDA_ERROR_ILLEGAL_STATE : CUDA_SUCCESS;
  Driver& driver = TheDriver();
  MutexLock lock(driver.graphs_mutex);
  Capture* capture = nullptr;
  Capture::Captured* one = nullptr;
  CU_TRY(FindCapture(driver.captures, *stream, &capture, &one));
  if (capture == nullptr) return external ? CUDA_ERROR_ILLEGAL_STATE : CUDA_SUCCESS;
  *captured = true;
  if (external) {
    if (work.event->shared != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    AddNode(*capture, *one, Work{nullptr, work});
    return CUDA_SUCCESS;
  }
  auto record = std::make_shared<Event::Record>();
  for (const auto& shared : driver.captures.all()) {
    if (shared.get() == capture) record->capture = shared;
  }
  record->nodes = one->next;
  work.event->set_latest(std::move(record));
  return CUDA_SUCCESS;
}

CUresult CaptureWait(const std::shared_ptr<Stream>& stream, const EventWork& work, bool external,
                     bool* captured) {
  *captured = false;
  const auto record = work.event->latest();
  const bool from_capture = record != nullptr && record->capture != nullptr;
  if (Idle() && !from_capture) return external ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  Driver& driver = TheDriver();
  MutexLock lock(driver.graphs_mutex);
  Capture* capture = nullptr;
  Capture::Captured* one = nullptr;
  CU_TRY(FindCapture(driver.captures, *stream, &capture, &one));
  if (external) {
    if (capture == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (work.event->shared != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    AddNode(*capture, *one, Work{nullptr, work});
    *captured = true;
    return CUDA_SUCCESS;
  }
  if (!from_capture) {
    if (capture == nullptr) return CUDA_SUCCESS;
    return Invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  }
  Capture* source = record->capture.get();
  if (source->ended) return Invalidate(capture, CUDA_ERROR_CAPTURED_EVENT);
  if (!source->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream->kind == StreamKind::kLegacy) {
    return Invalidate(source, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  if (capture != nullptr && capture != source) {
    capture->valid = false;
    return Invalidate(source, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  *captured = true;
  if (capture == nullptr) {
    source->streams.push_back({stream, record->nodes, {}});
  } else {
    AddTo(&one->next, record->nodes);
  }
  return CUDA_SUCCESS;
}

CUresult RefuseIfCaptured(const Stream& stream, std::optional<CUresult> harmless) {
  if (Idle()) return CUDA_SUCCESS;
  Driver& driver = TheDriver();
  MutexLock lock(driver.graphs_mutex);
  Capture* capture = nullptr;
  Capture::Captured* one = nullptr;
  CU_TRY(FindCapture(driver.captures, stream, &capture, &one));
  if (capture == nullptr) return CUDA_SUCCESS;
  return harmless ? *harmless : Invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CUresult RefuseIfCaptured(const StreamGroup* group) {
  if (Idle()) return CUDA_SUCCESS;
  Driver& driver = TheDriver();
  MutexLock lock(driver.graphs_mutex);
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : driver.captures.all()) {
    for (const Capture::Captured& one : capture->streams) {
      if (one.stream->group.get() != group) continue;
      result = Invalidate(capture.get(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
  }
  return result;
}

CUresult FindRecord(const Event& event, std::shared_ptr<Event::Record>* record) {
  *record = event.latest();
  if (*record == nullptr || (*record)->capture == nullptr) return CUDA_SUCCESS;
  MutexLock lock(TheDriver().graphs_mutex);
  return Invalidate((*record)->capture.get(), CUDA_ERROR_CAPTURED_EVENT);
}

CUresult RefuseUnsafe() {
  if (Idle() || ThreadCaptureMode() == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  Driver& driver = TheDriver();
  MutexLock lock(driver.graphs_mutex);
  CUresult result = CUDA_SUCCESS;
  for (const auto& capture : driver.captures.all()) {
    const bool mine = capture->thread == std::this_thread::get_id();
    const bool concerned = mine ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                                : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                      ThreadCaptureMode() == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!concerned) continue;
    result = Invalidate(capture.get(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
  return result;
}

void DropCapturesOf(const Stream* stream) {
  if (Idle()) return;
  Driver& driver = TheDriver();
  MutexLock lock(driver.graphs_mutex);
  Capture* capture = driver.captures.Of(stream);
  if (capture == nullptr) return;
  if (capture->streams.front().stream.get() != stream) {
    if (!capture->Joined(stream)) capture->valid = false;
    std::erase_if(capture->streams, [&](const auto& one) { return one.stream.get() == stream; });
    return;
  }
  capture->valid = false;
  if (capture->own_graph) Graph::Forget(capture->graph);
  driver.captures.End(capture);
}

void DropCapturesOf(const StreamGroup* group) {
  if (Idle()) return;
  std::vector<std::shared_ptr<Stream>> streams;
  {
    MutexLock lock(TheDriver().graphs_mutex);
    for (const auto& capture : TheDriver().captures.all()) {
      for (const Capture::Captured& one : capture->streams) {
        if (one.stream->group.get() == group) streams.push_back(one.stream);
      }
    }
  }
  for (const auto& stream : streams) DropCapturesOf(stream.get());
}

}  // namespace tandem::soft
