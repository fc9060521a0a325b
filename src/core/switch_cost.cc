#include "src/core/switch_cost.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tandem::core {
namespace {

// A rate follows the bus within a part of a switch, between these numbers of chunks. One chunk
// that was late, or was ordered alone and took long to begin, moves it little.
constexpr double kHalfLivesInSwitch = 8;
constexpr uint64_t kLeastHalfLifeChunks = 4;
constexpr uint64_t kMostHalfLifeChunks = 64;
// Of the size of the largest switch, with each that is smaller.
constexpr double kKeptOfSize = 0.95;
// A session that was stopped in the middle of a chunk says nothing about the bus: no chunk counts
// as more times slower than expected.
constexpr double kMostSurprise = 8.0;
constexpr double kSmoothing = 0.25;  // least weight of the newest switch in base_seconds_
constexpr int kFewSwitches = 4;      // of which each counts the same
// Factor by which a chunk may take longer than expected: the bus may have become slower.
constexpr double kMostSlowdown = 16;
constexpr double kSlowestBytesPerSecond = 10e6;
constexpr double kFastestBytesPerSecond = 1e12;
constexpr double kLongestSeconds = 1e6;  // of an estimate, so that sums of some do not overflow

Duration FromSeconds(double seconds) {
  return Duration(static_cast<int64_t>(std::min(seconds, kLongestSeconds) * 1e9));
}

}  // namespace

void FadingRatio::Add(double value, Bytes weight) {
  const double bytes = static_cast<double>(weight.count);
  const double kept = std::exp2(-bytes / static_cast<double>(half_life_.count));
  values_ = values_ * kept + value;
  weight_ = weight_ * kept + bytes;
}

Moves Moves::BothWays(Bytes bytes) {
  Moves moves;
  moves.at(Way::kOut, Place::kMemory) = moves.at(Way::kIn, Place::kMemory) = bytes;
  return moves;
}

SwitchCost::SwitchCost(double bytes_per_second, Bytes chunk)
    : assumed_seconds_per_byte_(1.0 / bytes_per_second), chunk_(std::max(chunk, Bytes(1))) {
  SetHalfLife();
}

void SwitchCost::SetHalfLife() {
  const Bytes half_life = std::clamp(Bytes(static_cast<uint64_t>(size_ / kHalfLivesInSwitch)),
                                     Bytes(chunk_.count * kLeastHalfLifeChunks),
                                     Bytes(chunk_.count * kMostHalfLifeChunks));
  for (auto& of_way : seconds_) {
    for (FadingRatio& ratio : of_way) ratio.SetHalfLife(half_life);
  }
}

// A rate that was not measured yet is that of the most similar move: the other way, then the host's
// memory. Bytes that are not copied cost nothing.
double SwitchCost::SecondsPerByte(Way way, Place place) const {
  const auto of = [this](Way of_way, Place of_place) -> const FadingRatio& {
    return seconds_[static_cast<size_t>(of_way)][static_cast<size_t>(of_place)];
  };
  const Way other = way == Way::kOut ? Way::kIn : Way::kOut;
  if (of(way, place).known()) return of(way, place).value();
  if (place == Place::kCard) return 0;
  if (of(other, place).known()) return of(other, place).value();
  return place == Place::kFile ? SecondsPerByte(way, Place::kMemory) : assumed_seconds_per_byte_;
}

double SwitchCost::SecondsOf(const Moves& moves) const {
  KeepRates();
  double longest = 0;
  for (size_t way = 0; way < kWays; ++way) {
    double seconds = 0;
    for (size_t place = 0; place < kPlaces; ++place) {
      seconds += rates_[way][place] * static_cast<double>(moves.bytes[way][place].count);
    }
    longest = std::max(longest, seconds);
  }
  return longest;
}

Duration SwitchCost::Estimate(const Moves& moves) const {
  return FromSeconds(base_seconds_ + SecondsOf(moves));
}

Duration SwitchCost::MostForChunk(Way way) const {
  KeepRates();
  return most_for_chunk_[static_cast<size_t>(way)];
}

void SwitchCost::KeepRates() const {
  if (!std::exchange(outdated_, false)) return;
  for (const Way way : {Way::kOut, Way::kIn}) {
    const auto of_way = static_cast<size_t>(way);
    for (const Place place : {Place::kCard, Place::kMemory, Place::kFile}) {
      rates_[of_way][static_cast<size_t>(place)] = SecondsPerByte(way, place);
    }
    const auto memory = static_cast<size_t>(Place::kMemory),
               file = static_cast<size_t>(Place::kFile);
    const bool known = seconds_[of_way][memory].known() || seconds_[of_way][file].known();
    const double slowest = std::max(rates_[of_way][memory], rates_[of_way][file]);
    const double most = std::max(slowest * kMostSlowdown, known ? 0 : 1 / kSlowestBytesPerSecond);
    most_for_chunk_[of_way] = FromSeconds(most * static_cast<double>(chunk_.count));
  }
}

void SwitchCost::LearnMove(Way way, Place place, Bytes bytes, Duration took) {
  if (bytes == Bytes()) return;
  FadingRatio& ratio = seconds_[static_cast<size_t>(way)][static_cast<size_t>(place)];
  const double most = ratio.known()
                          ? kMostSurprise * std::max(ratio.value(), 1 / kFastestBytesPerSecond)
                          : 1 / kSlowestBytesPerSecond;
  const double seconds = std::max(took.seconds(), 0.0);
  ratio.Add(std::min(seconds, most * static_cast<double>(bytes.count)), bytes);
  outdated_ = true;
}

void SwitchCost::LearnSwitch(const Moves& moves, Duration took) {
  const double rest = std::max(took.seconds() - SecondsOf(moves), 0.0);
  switches_ = std::min(switches_ + 1, kFewSwitches);
  const double weight = std::max(kSmoothing, 1.0 / switches_);
  base_seconds_ += weight * (std::min(rest, kMostSurprise * base_seconds_) - base_seconds_);
  const Bytes size = std::max(moves.Copied(Way::kOut), moves.Copied(Way::kIn));
  size_ = std::max(static_cast<double>(size.count), kKeptOfSize * size_);
  SetHalfLife();
}

}  // namespace tandem::core
