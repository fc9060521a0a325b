#include "src/core/harvest.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace tandem::core {
namespace {

// The part of a cycle's time that others may lose.
constexpr double kTolerated = 0.01;
// Cycles beside each other before the loss is judged, and the least number if the loss is evident.
// At least one cycle in `kAloneEvery` is alone.
constexpr uint64_t kJudged = 16, kLeastJudged = 4;
constexpr uint64_t kAloneEvery = 16;
// Only this number of cycles alone counts: the others may change their habits.
constexpr uint64_t kAloneKept = 64;
constexpr double kNewest = 0.125;  // its weight in what is typical
constexpr double kMore = 0.05;
constexpr double kLess = 0.5;
constexpr double kLeast = 0.05;  // or it would never be seen that there is room again
constexpr double kMost = 2;
// Standard errors by which a loss must exceed the tolerated one to be believed, and to be believed
// at once.
constexpr double kCertain = 1, kEvident = 3;

// In a pause the card is left alone at most this number of cycles, and at most this time.
constexpr int64_t kLongPause = 2;
constexpr Duration kLongestRest = Seconds(1);
// To be gone before a pause ends: what is in flight, and the messages.
constexpr Duration kToLeave = Milliseconds(1);
constexpr size_t kPausesKept = 64;

}  // namespace

void Moments::Add(double value) {
  ++count_;
  const double before = value - mean_;
  mean_ += before / static_cast<double>(count_);
  squares_ += before * (value - mean_);
}

double Moments::ErrorSquared() const {
  if (count_ < 2) return 0;
  const auto count = static_cast<double>(count_);
  return squares_ / (count - 1) / count;
}

void Harvest::OnWork(Instant now) {
  if (begun_) {
    if (pauses_.size() < kPausesKept) pauses_.emplace_back();
    pauses_[oldest_++ % kPausesKept] = now - since_;
  }
  working_ = true;
  since_ = now;
}

void Harvest::OnPause(Instant now) {
  if (begun_) EndCycle(now);
  begun_ = true;
  working_ = left_ = long_ = false;
  since_ = cycle_since_ = now;
  Choose();
}

void Harvest::EndCycle(Instant now) {
  const double work = (now - since_).seconds();
  const double cycle = (now - cycle_since_).seconds();
  typical_seconds_ += typical_seconds_ == 0 ? cycle : kNewest * (cycle - typical_seconds_);
  if (part_ == Part::kNothing && !long_) {
    if (alone_.count() == kAloneKept) alone_ = Moments();
    alone_.Add(work);
  } else {
    beside_.Add(work);
  }
  if (beside_.count() >= kLeastJudged && alone_.count() >= kLeastJudged) Judge();
}

void Harvest::Judge() {
  const double lost = beside_.mean() - alone_.mean() - kTolerated * typical_seconds_;
  const double error = std::sqrt(beside_.ErrorSquared() + alone_.ErrorSquared());
  const bool enough = beside_.count() >= kJudged || lost > kEvident * error;
  if (!enough) return;
  const bool too_much = lost > kCertain * error;
  rate_ = std::clamp(too_much ? rate_ * kLess : rate_ + kMore, kLeast, kMost);
  beside_ = Moments();
}

void Harvest::Choose() {
  stay_.reset();
  if (++since_alone_ >= kAloneEvery) {
    since_alone_ = 0;
    part_ = Part::kNothing;
    return;
  }
  part_ = Part::kPause;
  if (rate_ < 1) {
    stay_ = Stay();
  } else if ((due_ += rate_ - 1) >= 1) {
    due_ -= 1;
    part_ = Part::kAll;
  }
}

std::optional<Duration> Harvest::Stay() const {
  if (pauses_.empty()) return std::nullopt;
  std::vector<Duration> sorted = pauses_;
  const auto at =
      sorted.begin() + static_cast<ptrdiff_t>(rate_ * static_cast<double>(sorted.size()));
  std::nth_element(sorted.begin(), at, sorted.end());
  return std::max(*at - kToLeave, Duration());
}

Duration Harvest::LongestRest() const {
  const auto typical = Duration(static_cast<int64_t>(typical_seconds_ * 1e9));
  return typical == Duration() ? kLongestRest : std::min(typical * kLongPause, kLongestRest);
}

std::optional<Instant> Harvest::updates_at() const {
  if (working_ || long_ || part_ == Part::kAll) return std::nullopt;
  if (part_ == Part::kNothing || left_) return since_ + LongestRest();
  return stay_.has_value() ? std::optional(since_ + *stay_) : std::nullopt;
}

void Harvest::Update(Instant now) {
  for (std::optional<Instant> at = updates_at(); at.has_value() && now >= *at; at = updates_at()) {
    const bool leaves = part_ == Part::kPause && !left_;
    left_ = leaves;
    long_ = !leaves;
  }
}

}  // namespace tandem::core
