// SwitchCost: how long it takes to hand a GPU over, learned from the bytes that are seen to move.
//
// Each way and each place has a rate of its own. A rate follows every chunk that is told of, so it
// is right in the middle of the first switch already, also for the switch under way. Time in which
// a session drains, waits for credit or is stopped is no part of a rate.
//
// Threading: none. Pure.
#pragma once

#include <array>
#include <cstddef>

#include "src/base/bytes.h"
#include "src/base/time.h"

namespace tandem::core {

// The way of bytes, as the card sees it.
enum class Way { kOut, kIn };
inline constexpr size_t kWays = 2;
// Where bytes go, or come from. kCard: they are not copied, since the host has them already, or
// since nothing was ever written to them.
enum class Place { kCard, kMemory, kFile };
inline constexpr size_t kPlaces = 3;

// A quotient of two sums that forgets: each `half_life` of weight halves what was there before.
class FadingRatio {
 public:
  explicit FadingRatio(Bytes half_life = Bytes(1)) : half_life_(half_life) {}

  void Add(double value, Bytes weight);
  void SetHalfLife(Bytes half_life) { half_life_ = half_life; }
  bool known() const { return weight_ > 0; }
  // Of values over weights. REQUIRES: known.
  double value() const { return values_ / weight_; }

 private:
  Bytes half_life_;
  double values_ = 0;
  double weight_ = 0;
};

// What a hand-over moves.
struct Moves {
  std::array<std::array<Bytes, kPlaces>, kWays> bytes = {};

  Bytes& at(Way way, Place place) {
    return bytes[static_cast<size_t>(way)][static_cast<size_t>(place)];
  }
  Bytes at(Way way, Place place) const {
    return bytes[static_cast<size_t>(way)][static_cast<size_t>(place)];
  }
  Bytes Copied(Way way) const { return at(way, Place::kMemory) + at(way, Place::kFile); }
  // Copied out, and as much copied in.
  static Moves BothWays(Bytes bytes);
};

class SwitchCost {
 public:
  // Until something is measured, copies take `bytes_per_second`. `chunk`: the unit of swapping.
  SwitchCost(double bytes_per_second, Bytes chunk);

  // Both ways are used at once, so the longer one counts; the fixed cost of a switch is added.
  Duration Estimate(const Moves& moves) const;
  // How long at most until another chunk has moved, by far. Before anything was measured the
  // slowest bus that Tandem is made for counts.
  Duration MostForChunk(Way way) const;

  // The session moved these bytes in that time, and did nothing else.
  void LearnMove(Way way, Place place, Bytes bytes, Duration took);
  // A hand-over of `moves` took so long from the instant at which the last holder's work was done.
  void LearnSwitch(const Moves& moves, Duration took);

 private:
  double SecondsPerByte(Way way, Place place) const;
  double SecondsOf(const Moves& moves) const;
  // Of all rates, from the size of the switches.
  void SetHalfLife();
  // Brings what follows from the measurements up to date.
  void KeepRates() const;

  double assumed_seconds_per_byte_;
  Bytes chunk_;
  double base_seconds_ = 1e-3;  // messages, and whatever else does not go by bytes
  double size_ = 0;             // bytes of a large switch of late
  int switches_ = 0;            // that base_seconds_ was learned from, up to a few
  std::array<std::array<FadingRatio, kPlaces>, kWays> seconds_;  // per byte
  // What follows from the measurements, computed when it is asked for after a change.
  mutable bool outdated_ = true;
  mutable std::array<std::array<double, kPlaces>, kWays> rates_;  // seconds per byte
  mutable std::array<Duration, kWays> most_for_chunk_;
};

}  // namespace tandem::core
