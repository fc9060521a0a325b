#include "src/core/turns.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tandem::core {
namespace {

// Waiting for pauses like those seen takes somewhat longer than they were.
constexpr int64_t kSlack = 2;
// Beside what was seen, one pause of this part of the price: the program's thread was held up for a
// moment by something else, and is not done.
constexpr int64_t kAssumed = 128;

// The patience for pauses of up to `pause`, where `longer` of those that were seen are longer.
Duration Beyond(Duration pause, int64_t longer, Duration price) {
  const double seconds = std::sqrt(price.seconds() * pause.seconds() / static_cast<double>(longer));
  return std::min(std::max(Duration(static_cast<int64_t>(seconds * 1e9)), pause * kSlack), price);
}

}  // namespace

void SwitchAllowance::Start(Instant now) {
  since_ = since_.value_or(now);
}

Duration SwitchAllowance::Saved(Duration cost, Instant now) const {
  return std::min(saved_ + (now - *since_) / cost_multiple_, std::max(cost, kMostSaved));
}

void SwitchAllowance::Spend(Duration cost, Instant now) {
  if (cost_multiple_ == 0) return;
  saved_ = std::max(Saved(cost * 2, now) - cost, Duration() - cost);
  since_ = now;
}

Instant SwitchAllowance::AffordableAt(Duration cost, Instant now) const {
  const Duration lacking = cost - Saved(cost, now);
  return now + std::max(lacking, Duration()) * cost_multiple_;
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

void Pauses::Add(Duration value) {
  if (values_.size() < kKept) {
    values_.push_back(value);
  } else {
    values_[next_++ % kKept] = value;
  }
}

Duration Pauses::Patience(Duration price) const {
  std::vector<Duration> sorted = values_;
  if (sorted.size() < kKept) sorted.push_back(price / kAssumed);
  std::sort(sorted.begin(), sorted.end());
  const auto count = static_cast<int64_t>(sorted.size());
  int64_t in_time = 0;
  Duration ended;  // the sum of those that end in time
  Duration best;
  Duration least = price * count;  // each of them taken at once
  const auto consider = [&](Duration patience) {
    for (; in_time < count && sorted[in_time] <= patience; ++in_time) {
      ended = ended + sorted[in_time];
    }
    const Duration cost = ended + (patience + price) * (count - in_time);
    if (cost > least) return;  // of equals the longest: what was never seen may be still
    least = cost;
    const bool some = patience < price && in_time < count;
    best = some ? Beyond(sorted[in_time - 1], count - in_time, price) : price;
  };
  for (const Duration pause : sorted) {
    if (pause * kSlack >= price) break;
    consider(pause * kSlack);
  }
  consider(price);
  return best;
}

Duration TurnRules::Quantum(Duration cost) const {
  return std::max(floor, cost * cost_multiple);
}

Duration IdlePatience(bool bytes_move, Duration cost, const Pauses& pauses, bool waiter_pauses) {
  return bytes_move ? pauses.Patience(waiter_pauses ? cost : cost * 2) : Duration();
}

}  // namespace tandem::core
