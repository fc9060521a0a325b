// Scheduler: streams, and the engines that do their work.
//
// A stream is a queue of tasks done one after the other. Every device has four engines, each a
// thread: kernels and work inside the device, copies to it, copies from it, and functions of the
// host. So a kernel and copies in both directions go on at the same time. Tasks without an engine
// (event records, waits) are done by the thread that finishes what they wait for.
//
// Order: a task starts when the one before it in its stream is done and when all it comes `after`
// is done. That one rule also makes the legacy default stream: its tasks come after everything
// submitted to the context's blocking streams, and theirs after everything in it.
//
// Threading: any thread may submit and wait. Engines run tasks without the lock.
//
// Invariants:
// 1. completed <= submitted in every stream, and neither ever goes back.
// 2. A task comes only after tasks submitted before it, so there is no cycle and nothing starves.
// 3. After a task fails, no other task of its context is run (the context is poisoned); they are
//    counted as completed, so no waiter waits for ever.
// 4. TaskTime::cursor() of the thread that runs a task is the device time from which it may run:
//    when it was submitted and all it comes after was at its end. The task moves it to its end.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "softgpu/card/device_clock.h"
#include "softgpu/engine/launch_attributes.h"
#include "src/base/mutex.h"
#include "src/cuda/driver_types.h"

namespace tandem::soft {

enum class EngineKind { kCompute, kToDevice, kToHost, kHost, kNone };
inline constexpr int kEngineCount = 4;

class Engines;
class Stream;

// What the streams of one context have in common.
struct StreamGroup {
  explicit StreamGroup(Engines* engines) : engines(engines) {}
  Engines* const engines;
  std::atomic<CUresult> error = CUDA_SUCCESS;  // sticky: the first that a task gave
};

// Everything in `stream` up to number `count`. A shared_ptr because a destroyed stream's work goes
// on and others may wait for it.
struct Dependency {
  std::shared_ptr<Stream> stream;
  uint64_t count = 0;
};

struct Task {
  EngineKind engine = EngineKind::kNone;
  // kNone: run under the scheduler's lock, so short and without locks of its own.
  std::function<CUresult()> run;
  std::vector<Dependency> after;
  bool always = false;  // also in a poisoned context
};

// A task among those of a graph.
struct GraphTask {
  std::shared_ptr<StreamGroup> group;  // whose engines do it
  Task task;
  std::vector<size_t> before;   // which earlier tasks of the graph it comes after
  std::optional<int> priority;  // else that of the stream that the graph is launched in
};

inline constexpr int kGreatestPriority = -5;  // of a stream; the least is 0
inline constexpr int kNobodyWaits = 1;        // in place of a priority
inline int ClampPriority(int priority) {
  return std::clamp(priority, kGreatestPriority, 0);
}

enum class StreamKind { kLegacy, kBlocking, kNonBlocking };

// Members are the scheduler's, under its lock, except the constants.
class Stream {
 public:
  Stream(std::shared_ptr<StreamGroup> group, StreamKind kind, int priority)
      : group(std::move(group)), kind(kind), priority(priority) {}
  const std::shared_ptr<StreamGroup> group;
  const StreamKind kind;
  const int priority;  // lower goes first

  Mutex hints_mutex;
  Hints hints GUARDED_BY(hints_mutex);

 private:
  friend class Scheduler;
  struct Queued {
    Task task;
    uint64_t order = 0;  // of submission, over all streams
    Instant ready;       // device time from which it may run, as far as known
    bool seen_ready = false;
  };
  std::deque<Queued> queue_;
  bool running_ = false;
  uint64_t submitted_ = 0;
  uint64_t completed_ = 0;
  Instant reached_;  // device time of the end of what is completed
};

class Scheduler;

// For a compute task that can be interrupted: work of streams with a higher priority than its own.
class UrgentWork {
 public:
  // Of the stream that the task is of.
  static int Priority();
  // Cheap. REQUIRES: called by the task, on the thread that runs it.
  static bool Waits();
  // Does it, here and now. TaskTime::cursor() is as before.
  static void Do();
};

// The engines of one device. They live as long as the process.
class Engines {
 public:
  // `on_idle` is called by an engine's thread when it has nothing more to do. Without a clock it is
  // the machine's.
  Engines(Scheduler* scheduler, DeviceClock* clock, std::function<void(EngineKind)> on_idle);

 private:
  friend class Scheduler;
  friend class UrgentWork;
  struct Engine {
    EngineKind kind = EngineKind::kNone;
    CondVar wake;
  };
  std::array<Engine, kEngineCount> engines_;
  Instant Now() const { return clock_ != nullptr ? clock_->Now() : MonotonicNow(); }
  bool model() const { return clock_ != nullptr && clock_->model(); }

  DeviceClock* const clock_;
  const std::function<void(EngineKind)> on_idle_;
  // The priority of the most urgent task that waits for the compute engine.
  std::atomic<int> urgent_ = kNobodyWaits;
};

class Scheduler {
 public:
  // The number under which to wait for the task. Waits itself while the stream's queue is full.
  Dependency Submit(const std::shared_ptr<Stream>& stream, Task task) EXCLUDES_LOCK(mutex_);

  // All of a graph as if it were one task of the stream, after `after` too: nothing of it begins
  // before the stream's present work is done, and later work of the stream waits for all of it.
  // Tells the number of each task and, last, of the whole.
  std::vector<Dependency> SubmitGraph(const std::shared_ptr<Stream>& stream,
                                      std::vector<GraphTask> tasks, std::vector<Dependency> after)
      EXCLUDES_LOCK(mutex_);

  void Wait(const std::vector<Dependency>& what) EXCLUDES_LOCK(mutex_);
  bool Done(const std::vector<Dependency>& what) EXCLUDES_LOCK(mutex_);
  // Whether the stream has been made to wait for it and still waits.
  bool Follows(const std::shared_ptr<Stream>& stream, const Dependency& what) EXCLUDES_LOCK(mutex_);
  // All that a wait for the stream means: for the legacy stream also the blocking ones.
  std::vector<Dependency> Pending(const std::shared_ptr<Stream>& stream) EXCLUDES_LOCK(mutex_);
  std::vector<Dependency> PendingOf(const StreamGroup* group) EXCLUDES_LOCK(mutex_);

  // Waits until no stream of the process has a task. False: not until then.
  bool WaitUntilIdle(std::optional<Instant> until) EXCLUDES_LOCK(mutex_);
  // Runs the function while no stream has a task, and none can get one. False: one has, and nothing
  // was run.
  bool WhileIdle(const std::function<void()>& function) EXCLUDES_LOCK(mutex_);

  void Start(Engines* engines);

 private:
  friend class UrgentWork;
  Dependency Append(const std::shared_ptr<Stream>& stream, Task task) REQUIRES_LOCK(mutex_);
  void Loop(Engines* engines, Engines::Engine* engine) EXCLUDES_LOCK(mutex_);
  void RunTask(const std::shared_ptr<Stream>& stream) REQUIRES_LOCK(mutex_);
  std::shared_ptr<Stream> Pick(const Engines* engines, EngineKind kind) REQUIRES_LOCK(mutex_);
  bool Ready(const Stream& stream) const REQUIRES_LOCK(mutex_);
  void RunUrgent(Engines* engines, int priority) EXCLUDES_LOCK(mutex_);
  void NoteUrgent(Engines* engines) REQUIRES_LOCK(mutex_);
  void SeeReady(Stream& stream) REQUIRES_LOCK(mutex_);
  static bool Reached(const std::vector<Dependency>& what);
  void Advance() REQUIRES_LOCK(mutex_);
  void Complete(Stream& stream, CUresult result) REQUIRES_LOCK(mutex_);

  Mutex mutex_;
  CondVar done_;
  uint64_t next_order_ GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<Stream>> active_ GUARDED_BY(mutex_);  // those with tasks
};

}  // namespace tandem::soft
