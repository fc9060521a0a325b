#include "src/core/turns.h"

#include <algorithm>

namespace tandem::core {
namespace {

constexpr double kSmoothing = 0.25;  // weight of the newest measurement
// Below this, what a switch took says more about the fixed part than about the bus.
constexpr Bytes kFewBytes = MiB(1);
// A session stopped in the middle of a switch says nothing about switching.
constexpr double kMostSurprise = 8.0;

}  // namespace

Duration SwitchCost::Estimate(Bytes lacked) const {
  const double seconds = base_seconds_ + seconds_per_byte_ * static_cast<double>(lacked.count);
  return Duration(static_cast<int64_t>(seconds * 1e9));
}

void SwitchCost::Learn(Bytes lacked, Duration took) {
  const double seconds =
      std::clamp(took.seconds(), 0.0, kMostSurprise * Estimate(lacked).seconds());
  if (lacked < kFewBytes) {
    base_seconds_ += kSmoothing * (seconds - base_seconds_);
    return;
  }
  const double moving = std::max(seconds - base_seconds_, 0.0);
  const double sample = moving / static_cast<double>(lacked.count);
  seconds_per_byte_ += kSmoothing * (sample - seconds_per_byte_);
}

void Recent::Add(Duration value) {
  values_[count_++ % kKept] = value;
}

std::optional<Duration> Recent::Typical() const {
  const size_t held = std::min(count_, kKept);
  if (held == 0) return std::nullopt;
  std::array<Duration, kKept> sorted = values_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((held - 1) / 2);
  std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<std::ptrdiff_t>(held));
  return *middle;
}

Duration TurnRules::Quantum(Duration cost) const {
  return std::max(floor, cost * cost_multiple);
}

Duration IdlePatience(bool bytes_move, Duration cost, std::optional<Duration> gap,
                      bool waiter_pauses) {
  if (!bytes_move) return Duration();
  const Duration threshold = waiter_pauses ? cost : cost * 2;
  if (gap.has_value() && *gap > threshold) return Duration();
  return threshold;
}

}  // namespace tandem::core
