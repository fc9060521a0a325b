#include "src/shim/program/agent.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <string>
#include <utility>

#include "src/shim/driver/capture_mode.h"
#include "src/shim/os/end_by_signal.h"
#include "src/shim/os/log.h"

namespace tandem::shim {
namespace {

using client::Step;

constexpr Duration kQuiet = Microseconds(200);  // without a submit, before asking events
constexpr Duration kKeptPause = Seconds(1);     // the same, while a lease of the program's lasts
constexpr Duration kLongestRetry = Milliseconds(250);
constexpr Duration kListenPeriod = Milliseconds(1);
constexpr Duration kReconnectPeriod = Milliseconds(100);
constexpr Duration kDrainPause = Microseconds(20);
constexpr Duration kStopPatience = Seconds(2);
constexpr Duration kAlonePatience = Seconds(2);

timespec ToTimespec(Duration duration) {
  return {static_cast<time_t>(duration.ns / 1000000000),
          static_cast<long>(duration.ns % 1000000000)};
}

}  // namespace

Duration Agent::Backoff(Duration first, int failures) {
  return std::min(first * (1 << std::min(failures, 10)), kLongestRetry);
}

bool Agent::Start() {
  if (!OpenWake()) return false;
  // Signals are the program's; none is handled on a thread it does not know.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  started_ = pthread_create(&thread_, nullptr, &Agent::Main, this) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (started_) pthread_detach(thread_);
  return started_;
}

bool Agent::OpenWake() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return false;
  MutexLock lock(wake_mutex_);
  wake_out_ = OwnFd(AboveStandardStreams(UniqueFd(ends[0])));
  wake_in_ = OwnFd(AboveStandardStreams(UniqueFd(ends[1])));
  return true;
}

void Agent::Wake() {
  if (woken_.exchange(true)) return;
  MutexLock lock(wake_mutex_);
  // A full socket wakes it too. One that the program has closed is found missing soon enough.
  [[maybe_unused]] const ssize_t sent = send(wake_in_.get(), "", 1, MSG_NOSIGNAL);
}

void Agent::Stop() {
  stop_.store(true, std::memory_order_release);
  Wake();
  const Instant deadline = MonotonicNow() + kStopPatience;
  const timespec pause = ToTimespec(Microseconds(50));
  while (!stopped_.load(std::memory_order_acquire) && MonotonicNow() < deadline) {
    nanosleep(&pause, nullptr);
  }
}

void Agent::AbandonInChild() {
  started_ = false;
  wake_in_ = OwnFd();
  wake_out_ = OwnFd();
}

void* Agent::Main(void* self) {
  pthread_setname_np(pthread_self(), "tandem");
  auto* const agent = static_cast<Agent*>(self);
  const RelaxedCapture relaxed(agent->parts_.real);
  agent->Loop();
  return nullptr;
}

void Agent::Loop() {
  while (!stop_.load(std::memory_order_acquire)) {
    Listen(Patience());
    if (undrained_) parts_.link->With([](client::Lease& lease) { lease.OnRested(); });
    undrained_ = false;
    if (lost_ && MonotonicNow() >= reconnect_at_) Reconnect();
    if (!lost_ && parts_.offers != nullptr) parts_.offers->TellUntold();
    ReleaseFreedMemory();
    ReturnUnusedReservation();
    KeepHostMemoryReady();
    alone_.Serve([this](const AloneJob::Job& job) { return TryAlone(job, kAlonePatience); });
    Exchange();
    Refuse();
    MoveIfTold();
    Work();
    ServeLeases();
    WatchIdleness();
    Publish();
  }
  alone_.End();
  stopped_.store(true, std::memory_order_release);
}

void Agent::Listen(Duration patience) {
  int wake = -1;
  {
    MutexLock lock(wake_mutex_);
    wake = wake_out_.get();
  }
  if (wake < 0) OpenWake();
  pollfd entries[2] = {{wake, POLLIN, 0}, {parts_.link->fd(), POLLIN, 0}};
  const timespec timeout = ToTimespec(patience);
  const int ready = ppoll(entries, 2, &timeout, nullptr);
  char drain[64];
  while (ready > 0 && entries[0].revents != 0 && read(wake, drain, sizeof(drain)) > 0) {
  }
  woken_.exchange(false);  // sees what those have done who did not write, since another had
  const bool cut_off = !lost_ && parts_.link->fd() < 0;
  if (!cut_off && (ready <= 0 || entries[1].revents == 0)) return;
  const Status received = parts_.link->Receive();
  if (parts_.link->TakeEnd()) EndIfWaiting();
  if (received.ok()) return;
  Log(LogLevel::kInfo, "the daemon is gone (%s); keeping what we have",
      received.error().message.c_str());
  parts_.link->Lose();
  lost_ = true;
}

// The user has asked twice. A handler for SIGINT runs only once the call that waits has returned,
// and that call has no error to return.
void Agent::EndIfWaiting() {
  if (parts_.gate->waiting() != 0 || parts_.link->WaitsForRoom()) EndBySignal(SIGINT);
}

void Agent::Reconnect() {
  reconnect_at_ = MonotonicNow() + kReconnectPeriod;
  // Nothing may come or go between what we claim and the daemon's answer.
  MutexLock lock(parts_.swapper->mutex());
  Result<Terms> terms = parts_.link->Register(parts_.memory->GetView().resident);
  if (terms.ok()) {
    lost_ = refusal_told_ = waiting_told_ = false;
    if (parts_.offers != nullptr) parts_.offers->OfferAgain();
    Log(LogLevel::kInfo, "registered with the daemon again");
    return;
  }
  const bool absent =
      terms.error().code == ErrorCode::kNotFound || terms.error().code == ErrorCode::kUnavailable;
  if (!absent && !refusal_told_) {
    Log(LogLevel::kWarn, "cannot register again: %s", terms.error().message.c_str());
    refusal_told_ = true;
  }
  parts_.link->StayAway(absent);
  const bool waited_for = parts_.gate->waiting() != 0 || parts_.link->WaitsForContext();
  if (absent && waited_for && !waiting_told_) {
    Log(LogLevel::kWarn, "the daemon is gone; work for the GPU waits until one runs again");
    waiting_told_ = true;
  }
}

// Cold memory comes onto the card only where a lease begins: then it is needed there, too, but no
// session has to leave for it earlier.
client::View Agent::GetView() const {
  // First: what a thread that waits has allocated is seen then.
  const bool wanted = parts_.gate->wanted() || parts_.leases->waiting();
  const MemoryView memory = parts_.memory->GetView();
  const std::optional<Bytes> most = parts_.link->most_resident();
  const Bytes reserved = std::min(parts_.leases->reserved(), parts_.link->most_needed());
  Bytes need = std::max(memory.need, reserved);
  if (most.has_value()) {
    bool working = false;
    parts_.link->With([&](client::Lease& lease) { working = lease.working(); });
    if (working) need = SaturatingSubtract(need, memory.needed_cold);
    need = std::min(need, *most);
  }
  return {.need = need,
          .resident = memory.resident,
          .missing = memory.missing,
          .next_chunk = memory.next_chunk,
          .wanted = wanted,
          .chills = most.has_value(),
          .reserved = most.has_value() ? Bytes() : reserved};
}

void Agent::Work() {
  retry_ = false;
  for (;;) {
    const client::View view = GetView();
    Step step = Step::kNone;
    parts_.link->With([&](client::Lease& lease) { step = lease.Next(view); });
    bool progress = false;
    switch (step) {
      case Step::kNone:
        return;
      case Step::kDrain:
        progress = Drain();
        break;
      case Step::kEvict:
        progress = Evict();
        break;
      case Step::kRestore:
        progress = Restore();
        break;
      case Step::kOpen:
        progress = Open();
        break;
    }
    if (!progress) {
      retry_ = true;
      return;
    }
    if (!lost_) Listen(Duration());
  }
}

// Goes on listening while it waits: a thread of the program that waits for an answer of the
// daemon's may be what the work under way waits for.
void Agent::Wait(Duration pause) {
  if (lost_) {
    const timespec time = ToTimespec(pause);
    nanosleep(&time, nullptr);
  } else {
    Listen(pause);
  }
}

bool Agent::CloseGate(Instant deadline) {
  while (!parts_.gate->Close(std::min(deadline, MonotonicNow() + kListenPeriod))) {
    if (MonotonicNow() >= deadline) return false;
    Wait(Duration());
  }
  return true;
}

CUresult Agent::AwaitWork(Instant deadline) {
  CUresult result = parts_.tracker->Begin(parts_.device);
  if (result != CUDA_SUCCESS) return result;
  while ((result = parts_.tracker->Poll(parts_.device)) == CUDA_ERROR_NOT_READY) {
    if (MonotonicNow() >= deadline) break;
    Wait(kDrainPause);
  }
  return result;
}

// The next step opens the gate again, or drains for the session that wants the card meanwhile.
AloneJob::Answer Agent::TryAlone(const AloneJob::Job& job, Duration patience) {
  bool may = false;
  parts_.link->With([&](client::Lease& lease) {
    may = lease.holds() && lease.open() && !lease.poisoned();
    if (may) lease.OnShut();
  });
  if (!may) return AloneJob::Answer::kNotNow;
  const Instant deadline = MonotonicNow() + patience;
  CUresult result = CUDA_ERROR_NOT_READY;
  // It was idle for a moment only: the daemon is to know that it has such.
  if (Gate::Submits() != seen_submits_) {
    parts_.link->With([](client::Lease& lease) { lease.OnActive(); });
  }
  if (CloseGate(deadline)) result = AwaitWork(deadline);
  measuring_ = false;
  if (result != CUDA_SUCCESS) {
    MutexLock lock(parts_.swapper->mutex());
    if (IsSticky(result)) DropBroken();
    return AloneJob::Answer::kUndrained;
  }
  parts_.tracker->Forget();
  parts_.fence->OnDrained();
  MutexLock lock(parts_.swapper->mutex());
  job();
  return AloneJob::Answer::kDone;
}

bool Agent::Drain() {
  Duration patience;
  parts_.link->With([&](client::Lease& lease) { patience = lease.drain_deadline(); });
  const Instant deadline = MonotonicNow() + patience;
  CUresult result = CUDA_ERROR_NOT_READY;
  // It was idle for a moment only: the daemon is to know that it has such.
  if (Gate::Submits() != seen_submits_) {
    parts_.link->With([](client::Lease& lease) { lease.OnActive(); });
  }
  if (CloseGate(deadline)) result = AwaitWork(deadline);
  measuring_ = false;
  if (IsSticky(result)) {
    MutexLock lock(parts_.swapper->mutex());
    if (DropBroken()) return true;
  }
  const bool drained = result == CUDA_SUCCESS;
  undrained_ = !drained;
  if (drained) {
    parts_.tracker->Forget();
    parts_.fence->OnDrained();
  }
  parts_.link->With([&](client::Lease& lease) { lease.OnDrained(drained); });
  return true;
}

bool Agent::Evict() {
  parts_.link->Unreserve(parts_.memory->FreePages(0));
  unreturned_.store(true);
  MutexLock lock(parts_.swapper->mutex());
  Bytes target;
  parts_.link->With([&](client::Lease& lease) { target = lease.credit(); });
  const auto tell = [this](Bytes copied) REQUIRES_LOCK(parts_.swapper->mutex()) {
    Publish();  // the daemon reads it with the message
    const Bytes resident = parts_.memory->GetView().resident;
    const Bytes to_file = parts_.swapper->TakeToFile();
    parts_.link->With([&](client::Lease& lease) { lease.OnEvicted(resident, copied, to_file); });
  };
  bool told = false;
  const auto moved = [&](Bytes copied) NO_THREAD_SAFETY_ANALYSIS {  // with the lock, as taken here
    tell(copied);
    told = true;
    if (parts_.gate->wanted()) {
      const client::View view = GetView();
      parts_.link->With([&](client::Lease& lease) { lease.OnWanted(view); });
    }
    if (!lost_) Listen(Duration());
  };
  const CUresult result = parts_.swapper->Evict(target, moved);
  if (!told) tell(Bytes());
  return Succeeded(result, "swap out GPU memory") && parts_.memory->GetView().resident <= target;
}

// True if the step went well.
bool Agent::Succeeded(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) {
    failures_ = 0;
    return true;
  }
  const bool hopeless = IsSticky(result) || parts_.swapper->context() == nullptr;
  if (hopeless && DropBroken()) return true;
  // Once the driver has ended, so has the program.
  if (++failures_ == 1 && result != CUDA_ERROR_DEINITIALIZED) {
    const bool memory = result == CUDA_ERROR_OUT_OF_MEMORY;
    const std::string why = memory ? "out of memory" : "error " + std::to_string(result);
    Log(LogLevel::kWarn, "could not %s (%s); retrying%s", what, why.c_str(),
        memory ? ". Check free host memory and programs outside Tandem" : "");
  }
  return false;
}

// Before the first work of a lease: cold memory, as far as there will be credit for it, is missing
// again. Whether any is. Without a daemon there is no more credit, and the card would refuse again
// what it has just refused.
bool Agent::Thaw() {
  bool working = false;
  Bytes credit;
  parts_.link->With([&](client::Lease& lease) {
    working = lease.working();
    // Of what has come free only since, others may have been given some.
    credit = std::max(lease.credit(), lease.asked_need());
  });
  const client::View view = GetView();
  if (!view.chills || working || lost_ || refused_) return false;
  if (parts_.memory->GetView().cold == Bytes()) return false;
  return parts_.swapper->Thaw(SaturatingSubtract(std::min(view.need, credit), view.resident));
}

bool Agent::Open() {
  MutexLock lock(parts_.swapper->mutex());
  if (Thaw()) return true;  // to be brought in first
  parts_.swapper->Expose(ArenaShare().total());
  host_memory_due_ = host_memory_due_ || parts_.swapper->HasReturned();
  Publish();  // or what was on the host would seem to be there still, with the next message
  bool opened = false;
  const bool contended = parts_.link->contended();
  parts_.link->With([&](client::Lease& lease) {
    parts_.tracker->SetWindow(lease.window());
    opened = parts_.memory->IfBacked(true, [&] { parts_.gate->Open(contended); });
    if (opened) lease.OnOpened(copied_in_);
  });
  if (opened) {
    copied_in_ = Bytes();
    refused_ = false;
    measuring_ = false;
    seen_submits_ = Gate::Submits();
    quiet_since_ = MonotonicNow();
  }
  return true;  // not opened: something was allocated meanwhile, which is the next step
}

// A broken context answers every call with its error by itself, and nothing it holds can be saved.
// Where there are others the program goes on with those. Else, also where there is none at all,
// nothing is gained by holding calls back. False: nothing has changed. REQUIRES: the swapper's
// lock.
bool Agent::DropBroken() {
  const std::vector<CUcontext> broken = parts_.tracker->TakeBroken(parts_.device);
  const CUcontext healthy = parts_.tracker->AnyContext(parts_.device);
  for (CUcontext context : broken) parts_.swapper->Lose(context, healthy);
  if (healthy != nullptr) {
    if (broken.empty()) return false;
    Log(LogLevel::kInfo, "one of the program's contexts is broken; the others go on");
    return true;
  }
  if (!broken.empty()) parts_.swapper->LoseUncopied();
  bool known = false;
  parts_.link->With([&](client::Lease& lease) {
    known = lease.poisoned() && broken.empty();
    lease.OnPoisoned();
  });
  parts_.gate->Open();
  if (known) return false;
  Log(LogLevel::kInfo, "the program has no context that works; it will not be swapped any more");
  return true;
}

// Leases that the program itself begins and ends. One that it gave up while it waited is asked for
// no longer, unless threads wait at the gate.
void Agent::ServeLeases() {
  if (parts_.leases->TakeGivenUp() && !parts_.leases->waiting() && parts_.gate->waiting() == 0) {
    parts_.link->With([](client::Lease& lease) { lease.Withdraw(); });
  }
  if (!parts_.leases->waiting()) return;
  const client::View view = GetView();
  bool granted = false;
  parts_.link->With(
      [&](client::Lease& lease) { granted = lease.poisoned() || lease.Satisfies(view); });
  if (granted) parts_.leases->Grant();
}

// Whether the program has submitted nothing for so long that it may be idle.
bool Agent::MayPause(Instant now) const {
  return now - quiet_since_ >= (parts_.leases->begun() != 0 ? kKeptPause : kQuiet) &&
         !Gate::AnyInside();
}

void Agent::WatchIdleness() {
  bool open = false, idle = false;
  const bool contended = parts_.link->contended();
  // Threads that allocate back memory within the credit under this lock: none may come in between.
  if (contended && parts_.swapper->mutex().TryLock()) {
    const client::View view = GetView();
    parts_.link->With([&](client::Lease& lease) { lease.OnContended(view); });
    parts_.swapper->mutex().Unlock();
  }
  parts_.link->With([&](client::Lease& lease) {
    open = lease.holds() && lease.open();
    has_run_ = lease.has_run();
    idle = lease.idle();
    parts_.tracker->SetWindow(lease.window());
  });
  // While no session waits the program's queue is not bounded.
  parts_.gate->Meter(open && contended);
  const bool watched = contended || parts_.link->watched() || parts_.leases->over();
  if (!has_run_ || idle) parts_.leases->SetOver(false);
  if (!has_run_ || (!watched && !idle)) {
    measuring_ = false;
    return;
  }
  const Instant now = MonotonicNow();
  const uint64_t submits = Gate::Submits();
  // Or it waits for another of its devices, and would never have both if it gave this one away.
  if (submits != seen_submits_ || parts_.gate->waiting() != 0) {
    seen_submits_ = submits;
    quiet_since_ = now;
    measuring_ = false;
    if (idle) parts_.link->With([](client::Lease& lease) { lease.OnActive(); });
    return;
  }
  if (idle || !MayPause(now)) return;
  if (!measuring_) {
    if (parts_.tracker->Begin(parts_.device) != CUDA_SUCCESS) return;
    measuring_ = true;
  }
  const CUresult result = parts_.tracker->Poll(parts_.device);
  if (IsSticky(result)) {
    MutexLock lock(parts_.swapper->mutex());
    DropBroken();
  } else if (result == CUDA_SUCCESS) {
    measuring_ = false;
    if (Gate::Submits() != submits) return;
    parts_.link->With([](client::Lease& lease) { lease.OnIdle(); });
  }
}

void Agent::Publish() {
  const MemoryView view = parts_.memory->GetView();
  parts_.link->Publish(view.resident, view.swapped, parts_.swapper->exchanged());
}

}  // namespace tandem::shim
