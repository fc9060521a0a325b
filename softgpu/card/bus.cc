#include "softgpu/card/bus.h"

#include <algorithm>

namespace tandem::soft {

SharedEngine EngineOf(Direction direction) {
  return direction == Direction::kToDevice ? SharedEngine::kToDevice : SharedEngine::kToHost;
}

Duration Bus::Time(Bytes bytes) const {
  const double seconds = static_cast<double>(bytes.count) / static_cast<double>(bytes_per_second_);
  return Duration(static_cast<int64_t>(seconds * 1e9));
}

Bytes Bus::piece() const {
  return Bytes(std::clamp(bytes_per_second_ / 1000, uint64_t{512}, MiB(16).count));
}

Instant Bus::Reserve(Direction direction, Bytes bytes, Instant now, Instant previous) {
  std::atomic<int64_t>& free_at = page_->engines[static_cast<int>(EngineOf(direction))].free_at_ns;
  const int64_t duration_ns = Time(bytes).ns;
  const int64_t earliest_ns =
      previous == Instant() ? now.ns
                            : std::min(now.ns, std::max(previous.ns, now.ns - 2 * duration_ns));
  int64_t busy_until_ns = free_at.load();
  for (;;) {
    const int64_t end_ns = std::max(busy_until_ns, earliest_ns) + duration_ns;
    if (free_at.compare_exchange_weak(busy_until_ns, end_ns)) return Instant(end_ns);
  }
}

}  // namespace tandem::soft
