// Harvest: how much of a card opportunistic work may take beside the work of others: what they
// leave in their pauses, up to shortly before these end, or more than that.
//
// It goes by what others lose. Their time runs in cycles of a pause and the work up to the next
// one. In some cycles the card is theirs alone; the work of the others is compared with that. As
// long as it takes no longer, but for a tolerance, a little more is taken (additive increase), and
// else half as much (multiplicative decrease): Chiu and Jain, "Analysis of the Increase and
// Decrease Algorithms for Congestion Avoidance in Computer Networks", 1989; for GPUs Wu et al.,
// "Transparent GPU Sharing in Container Clouds for Deep Learning Workloads" (TGS), NSDI 2023,
// section 4.2.
//
// What others lose they lose where a pause ends beside opportunistic work, which takes a moment to
// be gone. So that is what the rate bounds: the part of the pauses that end so. Opportunistic work
// leaves as soon as that part of the last pauses was over, and a moment before; the more alike
// pauses are, the more of them it has.
//
// Threading: none. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "src/base/time.h"

namespace tandem::core {

// Mean and variance of values as they come (Welford, "Note on a Method for Calculating Corrected
// Sums of Squares and Products", 1962).
class Moments {
 public:
  void Add(double value);
  uint64_t count() const { return count_; }
  double mean() const { return mean_; }
  // The square of the standard error of the mean; 0 where it cannot be told.
  double ErrorSquared() const;

 private:
  uint64_t count_ = 0;
  double mean_ = 0;
  double squares_ = 0;
};

class Harvest {
 public:
  // What the opportunistic have of a cycle.
  enum class Part { kNothing, kPause, kAll };

  // Others begin to work, the first of them; the last of them pauses. By turns.
  void OnWork(Instant now);
  void OnPause(Instant now);
  // In a pause it may have become time to leave, or to come: the others may be gone for long.
  void Update(Instant now);

  bool working() const { return working_; }
  // Whether they may have the card now.
  bool open() const {
    return part_ == Part::kAll || (!working_ && (long_ || (part_ == Part::kPause && !left_)));
  }
  // When Update has something to do, if nothing else happens before.
  std::optional<Instant> updates_at() const;

  // Up to 1 the part of the pauses that may end beside them; above that they have a part of the
  // work, too.
  double rate() const { return rate_; }

 private:
  void EndCycle(Instant now);
  void Judge();
  void Choose();
  std::optional<Duration> Stay() const;
  Duration LongestRest() const;

  bool working_ = false;
  bool begun_ = false;  // a whole cycle can be measured
  bool left_ = false;   // this pause, since it may soon end
  bool long_ = false;   // the pause is longer than any that counts
  Instant since_;       // it works, or pauses
  Instant cycle_since_;
  Part part_ = Part::kPause;
  std::optional<Duration> stay_;  // of a pause; none: all of it
  double rate_ = 0.5;
  double due_ = 0.5;          // of the cycles with the work, what was not had yet
  uint64_t since_alone_ = 0;  // cycles

  Moments alone_, beside_;        // seconds of work in a cycle
  double typical_seconds_ = 0;    // of a cycle; 0: none was measured yet
  std::vector<Duration> pauses_;  // the last ones
  size_t oldest_ = 0;             // of them
};

}  // namespace tandem::core
