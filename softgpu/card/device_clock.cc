#include "softgpu/card/device_clock.h"

#include <algorithm>
#include <cerrno>

namespace tandem::soft {
namespace {

constexpr Duration kTimerSlack = Microseconds(50);  // about what a timer is late
constexpr Duration kHoldMax = Milliseconds(200);    // by one piece of work

}  // namespace

Instant& TaskTime::cursor() {
  thread_local Instant cursor;
  return cursor;
}

Instant DeviceClock::Now() {
  const int64_t now_ns = MonotonicNow().ns - page_->clock_lag_ns.load();
  if (!model()) return Instant(now_ns);
  int64_t latest_ns = latest_ns_.load();
  while (latest_ns < now_ns && !latest_ns_.compare_exchange_weak(latest_ns, now_ns)) {
  }
  return Instant(std::max(latest_ns, now_ns));
}

Instant DeviceClock::FreeAt(SharedEngine engine, Instant earliest) const {
  const EngineState& state = page_->engines[static_cast<int>(engine)];
  return std::max(Instant(state.free_at_ns.load()), earliest);
}

Instant DeviceClock::Reserve(SharedEngine engine, Instant earliest, Duration length) {
  std::atomic<int64_t>& free_at = page_->engines[static_cast<int>(engine)].free_at_ns;
  int64_t busy_until_ns = free_at.load();
  for (;;) {
    const int64_t end_ns = std::max(busy_until_ns, earliest.ns) + length.ns;
    if (free_at.compare_exchange_weak(busy_until_ns, end_ns)) return Instant(end_ns);
  }
}

void DeviceClock::SleepUntil(Instant when) const {
  for (;;) {
    // Asked anew after every wait: the lag may have grown.
    const Instant end = when + Duration(page_->clock_lag_ns.load()) - kTimerSlack;
    if (end <= MonotonicNow()) return;
    const timespec time = {end.ns / 1000000000, end.ns % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr);
  }
}

void DeviceClock::Done(Instant end) {
  int64_t lag_ns = page_->clock_lag_ns.load();
  for (;;) {
    const int64_t late_ns = MonotonicNow().ns - end.ns - lag_ns;
    if (late_ns <= 0) return;
    const int64_t held_ns = lag_ns + std::min(late_ns, kHoldMax.ns);
    if (page_->clock_lag_ns.compare_exchange_weak(lag_ns, held_ns)) return;
  }
}

}  // namespace tandem::soft
