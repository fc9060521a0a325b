#include "src/serve/sampler.h"

#include <algorithm>
#include <utility>

namespace tandem::serve {

Sampler::Sampler(Ask ask, Duration interval)
    : ask_(std::move(ask)), interval_(interval), thread_([this] { Run(); }) {}

Sampler::~Sampler() {
  Stop();
  thread_.join();
}

void Sampler::Stop() {
  const MutexLock lock(mutex_);
  stopped_ = true;
  changed_.NotifyAll();
}

bool Sampler::Sleep(Duration duration) {
  const Instant end = MonotonicNow() + duration;
  const MutexLock lock(mutex_);
  while (!stopped_ && MonotonicNow() < end) changed_.WaitFor(mutex_, end - MonotonicNow());
  return !stopped_;
}

bool Sampler::IsNewerThan(uint64_t number) const {
  return latest_ != nullptr && latest_->number > number;
}

bool Sampler::IsWanted() const {
  return waiting_ > 0 && !IsNewerThan(wanted_ - 1);
}

void Sampler::Run() {
  Instant not_before;
  uint64_t number = 0;
  for (;;) {
    {
      const MutexLock lock(mutex_);
      for (;;) {
        if (stopped_) return;
        const Instant now = MonotonicNow();
        if (IsWanted() && now >= not_before) break;
        if (IsWanted()) {
          changed_.WaitFor(mutex_, not_before - now);
        } else {
          changed_.Wait(mutex_);
        }
      }
    }
    const Instant begin = MonotonicNow();
    not_before = begin + interval_;
    auto snapshot = std::make_shared<Snapshot>(ask_());
    snapshot->number = ++number;
    snapshot->at = begin;
    const MutexLock lock(mutex_);
    latest_ = std::move(snapshot);
    changed_.NotifyAll();
  }
}

std::shared_ptr<const Snapshot> Sampler::Latest(Duration patience) {
  uint64_t number = 0;
  {
    const MutexLock lock(mutex_);
    if (latest_ != nullptr) {
      if (MonotonicNow() - latest_->at <= interval_) return latest_;
      number = latest_->number;
    }
  }
  return Next(number, patience);
}

std::shared_ptr<const Snapshot> Sampler::Next(uint64_t number, Duration patience) {
  const Instant deadline = MonotonicNow() + patience;
  const MutexLock lock(mutex_);
  ++waiting_;
  wanted_ = std::max(wanted_, number + 1);
  changed_.NotifyAll();
  while (!stopped_ && !IsNewerThan(number) && MonotonicNow() < deadline) {
    changed_.WaitFor(mutex_, deadline - MonotonicNow());
  }
  --waiting_;
  return IsNewerThan(number) ? latest_ : nullptr;
}

}  // namespace tandem::serve
