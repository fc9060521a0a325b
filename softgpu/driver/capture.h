// Stream capture: while a stream is captured, what comes to it becomes nodes of a graph instead of
// being done. A captured event carries the capture over to another stream that waits for it.
//
// Threading: any thread; the functions take the driver's graphs_mutex. With no capture anywhere
// they cost one load.
//
// Invariants:
// 1. A stream belongs to at most one capture, the legacy stream to none.
// 2. A call that breaks a capture's rules leaves it invalid; its streams stay in it until it is
//    ended.
#pragma once

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "softgpu/driver/graph.h"
#include "src/base/mutex.h"

namespace tandem::soft {

struct Capture {
  struct Captured {
    std::shared_ptr<Stream> stream;
    std::vector<GraphNode*> next;    // what its next node comes after
    std::vector<CUgraphNode> shown;  // the same, as the program was last told
  };
  uint64_t id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  std::shared_ptr<Graph> graph;   // null once it has ended
  std::vector<Captured> streams;  // the one that it began in comes first
  bool own_graph = true;          // made by the capture, and goes if that fails
  bool valid = true;
  bool ended = false;

  // Whether all that `of`, or every stream, has captured comes before the first stream's next node.
  bool Joined(const Stream* of = nullptr) const;
};

// The captures under way. Part of the driver, under its graphs_mutex.
class Captures {
 public:
  // Null if the stream is in none.
  Capture* Of(const Stream* stream, Capture::Captured** captured = nullptr);
  Capture* Begin(const std::shared_ptr<Stream>& stream, CUstreamCaptureMode mode,
                 std::shared_ptr<Graph> graph, std::vector<GraphNode*> next);
  void End(Capture* capture);
  // A capture that the legacy stream of this group would have to wait for.
  Capture* BlockingIn(const StreamGroup* group);
  const std::vector<std::shared_ptr<Capture>>& all() const { return all_; }

 private:
  std::vector<std::shared_ptr<Capture>> all_;
};

// For calls that put work into a stream. Captured: it is a node now, and not to be submitted.
CUresult CaptureWork(const std::shared_ptr<Stream>& stream, const Work& work, bool* captured);
// The same for a record of an event and a wait for one. `external` asks for a node.
CUresult CaptureRecord(const std::shared_ptr<Stream>& stream, const EventWork& work, bool external,
                       bool* captured);
CUresult CaptureWait(const std::shared_ptr<Stream>& stream, const EventWork& work, bool external,
                     bool* captured);
// For calls that cannot be captured, on a stream: waiting for it, asking for it. They end the
// capture, but for those that it survives, which are refused with `harmless`.
CUresult RefuseIfCaptured(const Stream& stream, std::optional<CUresult> harmless = std::nullopt);
// The same for all streams of a context.
CUresult RefuseIfCaptured(const StreamGroup* group);
// For calls that look at an event: its latest record, null if there is none. One in a capture is
// nothing to look at.
CUresult FindRecord(const Event& event, std::shared_ptr<Event::Record>* record);
// For calls that may wait for or change more than they name: what the thread's mode makes of them.
CUresult RefuseUnsafe();
// A destroyed stream or context ends the captures that began in it. A capture that a destroyed
// stream was forked into stays valid iff the stream was joined.
void DropCapturesOf(const Stream* stream);
void DropCapturesOf(const StreamGroup* group);

// The calling thread's mode.
CUstreamCaptureMode& ThreadCaptureMode();

}  // namespace tandem::soft
