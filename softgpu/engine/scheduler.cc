#include "softgpu/engine/scheduler.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace tandem::soft {
namespace {

constexpr size_t kQueueLimit = 1024;  // tasks in one stream before submitting waits

constexpr size_t kGraphLanes = 16;  // of one graph, in one context

constexpr const char* kThreadNames[kEngineCount] = {"soft-compute", "soft-to-device",
                                                    "soft-to-host", "soft-host-fn"};

// What the calling thread runs; no scheduler: nothing that may be interrupted.
struct Running {
  Scheduler* scheduler = nullptr;
  Engines* engines = nullptr;
  int priority = 0;
};
thread_local Running t_running;

}  // namespace

int UrgentWork::Priority() {
  return t_running.priority;
}

bool UrgentWork::Waits() {
  return t_running.scheduler != nullptr &&
         t_running.engines->urgent_.load(std::memory_order_relaxed) < t_running.priority;
}

void UrgentWork::Do() {
  const Instant before = TaskTime::cursor();
  t_running.scheduler->RunUrgent(t_running.engines, t_running.priority);
  TaskTime::cursor() = before;
}

Engines::Engines(Scheduler* scheduler, DeviceClock* clock, std::function<void(EngineKind)> on_idle)
    : clock_(clock), on_idle_(std::move(on_idle)) {
  for (int i = 0; i < kEngineCount; ++i) engines_[i].kind = static_cast<EngineKind>(i);
  scheduler->Start(this);
}

void Scheduler::Start(Engines* engines) {
  // The program's handlers must not run on these threads, except for what the threads do
  // themselves: a fault whose signal is blocked ends the process unheard.
  sigset_t others, before;
  sigfillset(&others);
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
    sigdelset(&others, own);
  }
  pthread_sigmask(SIG_SETMASK, &others, &before);
  for (int i = 0; i < kEngineCount; ++i) {
    // Detached: they wait for work until the process ends, and touch nothing that is destroyed.
    std::thread([this, engines, i] {
      pthread_setname_np(pthread_self(), kThreadNames[i]);
      prctl(PR_SET_TIMERSLACK, 1000);  // ns: bus times are short
      Loop(engines, &engines->engines_[i]);
    }).detach();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

bool Scheduler::Reached(const std::vector<Dependency>& what) {
  for (const Dependency& dependency : what) {
    if (dependency.stream->completed_ < dependency.count) return false;
  }
  return true;
}

bool Scheduler::Ready(const Stream& stream) const {
  return !stream.running_ && !stream.queue_.empty() && Reached(stream.queue_.front().task.after);
}

// From when a task may run is settled as soon as it may: what it came after goes on.
void Scheduler::SeeReady(Stream& stream) {
  Stream::Queued& queued = stream.queue_.front();
  if (std::exchange(queued.seen_ready, true)) return;
  queued.ready = std::max(queued.ready, stream.reached_);
  const Engines* engines = stream.group->engines;
  for (const Dependency& dependency : queued.task.after) {
    const Stream& before = *dependency.stream;
    // Another device has a timeline of its own.
    const bool here = before.group->engines == engines;
    queued.ready = std::max(queued.ready, here ? before.reached_ : engines->Now());
  }
  if (!engines->model()) queued.ready = MonotonicNow();
}

Dependency Scheduler::Submit(const std::shared_ptr<Stream>& stream, Task task) {
  MutexLock lock(mutex_);
  while (stream->queue_.size() >= kQueueLimit) done_.Wait(mutex_);
  const Dependency submitted = Append(stream, std::move(task));
  Advance();
  return submitted;
}

Dependency Scheduler::Append(const std::shared_ptr<Stream>& stream, Task task) {
  for (const auto& other : active_) {
    if (other == stream || other->group != stream->group) continue;
    const bool ordered =
        (stream->kind == StreamKind::kLegacy && other->kind == StreamKind::kBlocking) ||
        (stream->kind == StreamKind::kBlocking && other->kind == StreamKind::kLegacy);
    if (ordered) task.after.push_back({other, other->submitted_});
  }
  if (stream->queue_.empty()) active_.push_back(stream);
  stream->queue_.push_back({std::move(task), next_order_++, stream->group->engines->Now()});
  return {stream, ++stream->submitted_};
}

// The tasks are dealt to streams of the graph's own, so that those without an order between them
// may run at once. A task goes on where one that it comes after was the last, else to a stream of
// its own while there are few. Every such stream has its tasks in the graph's order, so the first
// that is not done can always run.
std::vector<Dependency> Scheduler::SubmitGraph(const std::shared_ptr<Stream>& stream,
                                               std::vector<GraphTask> tasks,
                                               std::vector<Dependency> after) {
  MutexLock lock(mutex_);
  while (stream->queue_.size() >= kQueueLimit) done_.Wait(mutex_);
  Task begin;
  begin.after = std::move(after);
  const Dependency begun = Append(stream, std::move(begin));
  std::vector<std::shared_ptr<Stream>> lanes;
  std::vector<Dependency> submitted;
  for (GraphTask& next : tasks) {
    const int priority = next.priority.value_or(stream->priority);
    const auto fits = [&](const Stream& other) {
      return other.group == next.group && other.priority == priority;
    };
    std::shared_ptr<Stream> lane;
    for (const size_t i : next.before) {
      const Dependency& earlier = submitted[i];
      const bool last = earlier.count == earlier.stream->submitted_;
      if (last && fits(*earlier.stream)) lane = earlier.stream;
      next.task.after.push_back(earlier);
    }
    if (next.before.empty()) next.task.after.push_back(begun);
    if (!lane && lanes.size() >= kGraphLanes) {
      const auto& any = lanes[submitted.size() % lanes.size()];
      if (fits(*any)) lane = any;
    }
    if (!lane) {
      lane = std::make_shared<Stream>(next.group, StreamKind::kNonBlocking, priority);
      lanes.push_back(lane);
    }
    submitted.push_back(Append(lane, std::move(next.task)));
  }
  Task end;
  for (const auto& lane : lanes) end.after.push_back({lane, lane->submitted_});
  submitted.push_back(Append(stream, std::move(end)));
  Advance();
  return submitted;
}

void Scheduler::Wait(const std::vector<Dependency>& what) {
  MutexLock lock(mutex_);
  while (!Reached(what)) done_.Wait(mutex_);
}

bool Scheduler::Done(const std::vector<Dependency>& what) {
  MutexLock lock(mutex_);
  return Reached(what);
}

bool Scheduler::Follows(const std::shared_ptr<Stream>& stream, const Dependency& what) {
  MutexLock lock(mutex_);
  for (const Stream::Queued& queued : stream->queue_) {
    for (const Dependency& after : queued.task.after) {
      if (after.stream == what.stream && after.count >= what.count) return true;
    }
  }
  return false;
}

std::vector<Dependency> Scheduler::Pending(const std::shared_ptr<Stream>& stream) {
  MutexLock lock(mutex_);
  std::vector<Dependency> pending;
  for (const auto& other : active_) {
    const bool implied = stream->kind == StreamKind::kLegacy && other->group == stream->group &&
                         other->kind == StreamKind::kBlocking;
    if (other == stream || implied) pending.push_back({other, other->submitted_});
  }
  return pending;
}

std::vector<Dependency> Scheduler::PendingOf(const StreamGroup* group) {
  MutexLock lock(mutex_);
  std::vector<Dependency> pending;
  for (const auto& stream : active_) {
    if (stream->group.get() == group) pending.push_back({stream, stream->submitted_});
  }
  return pending;
}

bool Scheduler::WaitUntilIdle(std::optional<Instant> until) {
  MutexLock lock(mutex_);
  while (!active_.empty()) {
    if (!until.has_value()) {
      done_.Wait(mutex_);
      continue;
    }
    const Instant now = MonotonicNow();
    if (now >= *until) return false;
    done_.WaitFor(mutex_, *until - now);
  }
  return true;
}

bool Scheduler::WhileIdle(const std::function<void()>& function) {
  MutexLock lock(mutex_);
  if (!active_.empty()) return false;
  function();
  return true;
}

// Completes the tasks without an engine that can be, and wakes the engines that have work.
void Scheduler::Advance() {
  bool completed = true;
  while (completed) {
    completed = false;
    for (size_t i = 0; i < active_.size(); ++i) {
      const std::shared_ptr<Stream> stream = active_[i];
      while (Ready(*stream) && stream->queue_.front().task.engine == EngineKind::kNone) {
        const Task& task = stream->queue_.front().task;
        const bool skip = stream->group->error.load() != CUDA_SUCCESS && !task.always;
        SeeReady(*stream);
        TaskTime::cursor() = stream->queue_.front().ready;
        Complete(*stream, task.run && !skip ? task.run() : CUDA_SUCCESS);
        completed = true;
      }
    }
    std::erase_if(active_, [](const auto& stream) { return stream->queue_.empty(); });
  }
  for (const auto& stream : active_) {
    if (!Ready(*stream)) continue;
    SeeReady(*stream);
    const EngineKind kind = stream->queue_.front().task.engine;
    Engines* engines = stream->group->engines;
    if (kind == EngineKind::kCompute && stream->priority < engines->urgent_.load()) {
      engines->urgent_.store(stream->priority);
    }
    engines->engines_[static_cast<int>(kind)].wake.NotifyOne();
  }
}

void Scheduler::NoteUrgent(Engines* engines) {
  const std::shared_ptr<Stream> next = Pick(engines, EngineKind::kCompute);
  engines->urgent_.store(next ? next->priority : kNobodyWaits);
}

void Scheduler::RunUrgent(Engines* engines, int priority) {
  MutexLock lock(mutex_);
  for (;;) {
    const std::shared_ptr<Stream> stream = Pick(engines, EngineKind::kCompute);
    if (!stream || stream->priority >= priority) break;
    RunTask(stream);
  }
  NoteUrgent(engines);
}

void Scheduler::Complete(Stream& stream, CUresult result) {
  CUresult none = CUDA_SUCCESS;
  if (result != CUDA_SUCCESS) stream.group->error.compare_exchange_strong(none, result);
  stream.reached_ = std::max(stream.reached_, TaskTime::cursor());
  stream.queue_.pop_front();
  stream.completed_ += 1;
  done_.NotifyAll();
}

std::shared_ptr<Stream> Scheduler::Pick(const Engines* engines, EngineKind kind) {
  std::shared_ptr<Stream> best;
  for (const auto& stream : active_) {
    if (stream->group->engines != engines || !Ready(*stream)) continue;
    if (stream->queue_.front().task.engine != kind) continue;
    if (best && best->priority < stream->priority) continue;
    if (best && best->priority == stream->priority &&
        best->queue_.front().order < stream->queue_.front().order) {
      continue;
    }
    best = stream;
  }
  return best;
}

void Scheduler::RunTask(const std::shared_ptr<Stream>& stream) {
  stream->running_ = true;
  Engines* engines = stream->group->engines;
  NoteUrgent(engines);
  Task& task = stream->queue_.front().task;  // a deque's elements stay where they are
  const bool skip = stream->group->error.load() != CUDA_SUCCESS && !task.always;
  const EngineKind kind = task.engine;
  const Running interrupted = std::exchange(
      t_running,
      kind == EngineKind::kCompute ? Running{this, engines, stream->priority} : Running{});
  auto run = std::move(task.run);
  TaskTime::cursor() = stream->queue_.front().ready;
  mutex_.Unlock();
  const CUresult result = skip ? CUDA_SUCCESS : run();
  run = nullptr;  // the task may hold much memory, which is released before its end is told
  t_running = interrupted;
  if (kind == EngineKind::kHost) TaskTime::cursor() = std::max(TaskTime::cursor(), engines->Now());
  mutex_.Lock();
  stream->running_ = false;
  Complete(*stream, result);
  Advance();
}

void Scheduler::Loop(Engines* engines, Engines::Engine* engine) {
  MutexLock lock(mutex_);
  for (;;) {
    if (const std::shared_ptr<Stream> stream = Pick(engines, engine->kind)) {
      RunTask(stream);
      continue;
    }
    engines->on_idle_(engine->kind);
    engine->wake.Wait(mutex_);
  }
}

}  // namespace tandem::soft
