// WorkTracker: which streams have work that may not be done yet, found out by events. Those of all
// devices that the program uses: work on one may reach the memory of another.
//
// A thread marks a stream before it submits to it; as long as it goes on using the same stream that
// is one comparison. Default streams have no handle of their own: they are one mark, and an event
// on the legacy stream of every context stands for all of that context's blocking streams.
//
// Threading: any thread. The lock is held while events are recorded, so that no stream or context
// is destroyed meanwhile; never while waiting for work.
// Invariants
// 1. A stream with unfinished work is in the set, or its work is covered by a pending event.
// 2. The set shrinks only by Forget, with the gate closed and all work done, and by destruction.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "src/base/mutex.h"
#include "src/base/time.h"
#include "src/cuda/real_driver.h"
#include "src/shim/driver/event_pool.h"
#include "src/shim/gate/gate.h"
#include "src/shim/gate/in_flight.h"

namespace tandem::shim {

class WorkTracker {
 public:
  explicit WorkTracker(const cuda::RealDriver* real)
      : real_(real), events_(real), timed_events_(real, EventPool::Kind::kTimed) {
    Invalidate();  // what was marked for another
  }

  // By the submitting thread, inside the gate, before the submission.
  void Note(ThreadSlot* slot, CUstream stream) {
    if (NoteMarked(slot, stream)) [[likely]]
      return;
    Submitted(slot);
    Mark(slot, stream);
  }
  // The same if that is the stream the thread marked last; else false, and nothing has happened.
  [[gnu::always_inline]] static bool NoteMarked(ThreadSlot* slot, CUstream stream) {
    if (slot->marked_stream != stream ||
        slot->marked_generation != generation.load(std::memory_order_relaxed)) [[unlikely]] {
      return false;
    }
    Submitted(slot);
    return true;
  }

  // False if the context is none, or was destroyed.
  bool AddContext(CUcontext context) EXCLUDES_LOCK(mutex_);
  // The context is about to be destroyed; its streams and events go with it.
  void RemoveContext(CUcontext context) EXCLUDES_LOCK(mutex_);
  // Forgets the contexts on that device that answer with a sticky error, and returns them.
  std::vector<CUcontext> TakeBroken(CUdevice device) EXCLUDES_LOCK(mutex_);
  bool HasOneContext() const EXCLUDES_LOCK(mutex_) {
    MutexLock lock(mutex_);
    return contexts_.size() == 1;
  }
  // One on that device, or null.
  CUcontext AnyContext(CUdevice device) const EXCLUDES_LOCK(mutex_);
  // What the driver would say to an allocation or a free in the context: a sticky error, or that a
  // capture forbids it. REQUIRES: the context is current.
  CUresult Health(CUcontext context) EXCLUDES_LOCK(mutex_);
  // Whether a stream may be being captured, or a context has been found broken: then only the
  // driver can say what it thinks of an allocation.
  bool MayRefuse() const { return Capturing() || broken_.load(std::memory_order_acquire); }
  // Whether a stream may be being captured.
  bool Capturing() const { return captures_.load(std::memory_order_acquire) != 0; }
  void OnCaptureBegun() { captures_.fetch_add(1, std::memory_order_acq_rel); }
  void OnCaptureEnded() { captures_.fetch_sub(1, std::memory_order_acq_rel); }
  // Runs a call of the driver's by which a stream may come to be captured. It comes before or after
  // an event is put behind work, never in between: an event that lands in a capture breaks it.
  template <typename DriverCall>
  CUresult JoinCapture(DriverCall call) EXCLUDES_LOCK(mutex_) {
    MutexLock lock(mutex_);
    return call();
  }
  // Changes when a stream or a context is destroyed, so that what is known of it may be wrong.
  static uint64_t Generation() { return generation.load(std::memory_order_acquire); }
  // Destroys the stream with `destroy`; what it still has to do stays covered.
  CUresult DestroyStream(CUstream stream, CUresult (*destroy)(CUstream)) EXCLUDES_LOCK(mutex_);

  // How much work may be in flight while another session waits for the GPU.
  void SetWindow(Duration window) { window_ns_.store(window.ns, std::memory_order_relaxed); }
  // By a thread about to submit to `stream`, outside the gate: waits while more than the window is
  // under way there and `gate` is metered. Bounded: work in flight may itself wait for what this
  // thread is about to submit.
  void AwaitWindow(const Gate& gate, CUstream stream) EXCLUDES_LOCK(mutex_);

  // Work can be watched for two reasons, one beside the other.
  enum class Watch { kDrain, kFree };
  // On behalf of a device, puts an event behind everything that was submitted so far. A sticky
  // error of one of its contexts comes back; in one of another device nothing will be done any
  // more. Behind the default streams the event comes only once Poll finds all others done, and so
  // does their error: what a program submits to any blocking stream after an event on the legacy
  // one waits for all that the event waits for, and that may be waiting for the program.
  CUresult Begin(CUdevice device, Watch watch = Watch::kDrain) EXCLUDES_LOCK(mutex_);
  // CUDA_SUCCESS when all that is done, CUDA_ERROR_NOT_READY while it is not, else a sticky error.
  CUresult Poll(CUdevice device, Watch watch = Watch::kDrain) EXCLUDES_LOCK(mutex_);
  // Everything is done and nothing can come: starts with an empty set.
  void Forget() EXCLUDES_LOCK(mutex_);

 private:
  // A default stream is one of its context.
  using StreamKey = std::pair<CUcontext, CUstream>;
  // What the latest Begin put behind the work.
  struct Watched {
    std::vector<Marker> pending;
    bool legacy_due = false;  // its second part
  };

  static void Submitted(ThreadSlot* slot) {
    slot->submits.store(slot->submits.load(std::memory_order_relaxed) + 1,
                        std::memory_order_release);
  }
  // From now on no thread has marked anything.
  static void Invalidate() { generation.fetch_add(1, std::memory_order_relaxed); }
  void Mark(ThreadSlot* slot, CUstream stream) EXCLUDES_LOCK(mutex_);
  bool Add(CUcontext context) REQUIRES_LOCK(mutex_);
  bool IsOn(CUcontext context, CUdevice device) const REQUIRES_LOCK(mutex_);
  void Remove(CUcontext context) REQUIRES_LOCK(mutex_);
  CUcontext ContextOf(CUstream stream) const;
  CUresult Record(CUcontext context, CUstream stream, std::vector<Marker>* markers)
      REQUIRES_LOCK(mutex_);
  // Events on the legacy stream of each context, or on all streams that have a handle.
  CUresult RecordAll(CUdevice device, bool legacy, std::vector<Marker>* markers)
      REQUIRES_LOCK(mutex_);
  CUresult PollAll(CUdevice device, std::vector<Marker>* markers) REQUIRES_LOCK(mutex_);
  CUresult AskHealth(CUcontext context) REQUIRES_LOCK(mutex_);
  // Whether one more may be submitted, which counts it.
  bool Admit(const StreamKey& key, bool anyway) EXCLUDES_LOCK(mutex_);

  // Of the process, as marks are; slots begin with 0.
  static inline std::atomic<uint64_t> generation{1};

  const cuda::RealDriver* const real_;
  mutable Mutex mutex_;
  std::map<CUstream, CUcontext> streams_ GUARDED_BY(mutex_);
  bool default_streams_ GUARDED_BY(mutex_) = false;
  std::map<CUcontext, CUdevice> contexts_ GUARDED_BY(mutex_);
  EventPool events_ GUARDED_BY(mutex_);
  EventPool timed_events_ GUARDED_BY(mutex_);  // of in_flight_
  std::map<std::pair<CUdevice, Watch>, Watched> watched_ GUARDED_BY(mutex_);
  std::vector<Marker> orphaned_ GUARDED_BY(mutex_);  // of streams that are destroyed
  std::map<StreamKey, InFlight> in_flight_ GUARDED_BY(mutex_);
  std::map<CUcontext, CUevent> probes_ GUARDED_BY(mutex_);  // never recorded; for Health
  std::atomic<int64_t> window_ns_{0};
  std::atomic<int> captures_{0};     // one that ends with its stream or context stays
  std::atomic<bool> broken_{false};  // some context, once
};

// The context can do nothing any more; every call returns this until it is destroyed.
bool IsSticky(CUresult result);

}  // namespace tandem::shim
