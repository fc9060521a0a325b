#include "src/sim/card.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tandem::sim {

void Card::Copy(Way way, Bytes bytes, Timeline::Call done) {
  Instant& free_at = free_at_[way == Way::kIn ? 0 : 1];
  const double ns = static_cast<double>(bytes.count) / bytes_per_second_ * 1e9;
  free_at = std::max(free_at, timeline_->now()) + Duration(std::llround(ns));
  timeline_->At(free_at, std::move(done));
}

uint64_t Card::Run(Duration work, Timeline::Call done) {
  Advance();
  works_[++last_] = {static_cast<double>(work.ns), std::move(done)};
  Schedule();
  return last_;
}

Duration Card::Interrupt(uint64_t number) {
  Advance();
  const auto work = works_.find(number);
  if (work == works_.end()) return {};
  const Duration left(std::max<int64_t>(std::llround(work->second.left_ns), 0));
  works_.erase(work);
  Schedule();
  return left;
}

Duration Card::busy() {
  Advance();
  return busy_;
}

// What has been done since the last time.
void Card::Advance() {
  const Duration passed = timeline_->now() - std::exchange(advanced_at_, timeline_->now());
  if (works_.empty()) return;
  busy_ = busy_ + passed;
  const double each = static_cast<double>(passed.ns) / static_cast<double>(works_.size());
  for (auto& [number, work] : works_) work.left_ns -= each;
}

void Card::Schedule() {
  const uint64_t schedule = ++schedule_;
  if (works_.empty()) return;
  const auto next = std::min_element(
      works_.begin(), works_.end(),
      [](const auto& a, const auto& b) { return a.second.left_ns < b.second.left_ns; });
  const double until = std::max(next->second.left_ns, 0.0) * static_cast<double>(works_.size());
  timeline_->After(Duration(std::llround(std::ceil(until))),
                   [this, schedule, number = next->first] {
                     if (schedule != schedule_) return;
                     Advance();
                     const Timeline::Call done = std::move(works_.at(number).done);
                     works_.erase(number);
                     Schedule();
                     done();
                   });
}

}  // namespace tandem::sim
