// The rules of turns: how long a turn is protected, and when an idle holder gives way. Pure
// arithmetic on measured durations; the arbiter asks. What a switch costs: switch_cost.h.
//
// Threading: none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "src/base/time.h"

namespace tandem::core {

// What may be spent on switches that are not a turn's end: as much of the time as turns may cost,
// less what they did. So both together cost no more than that, but for what has been saved up.
class SwitchAllowance {
 public:
  // A switch may be made for every `cost_multiple` times its cost. REQUIRES: > 0, or never used.
  explicit SwitchAllowance(int64_t cost_multiple) : cost_multiple_(cost_multiple) {}

  // The first call counts: nothing has been saved up by then. REQUIRES: before all other calls.
  void Start(Instant now);
  void Spend(Duration cost, Instant now);
  // From when on there is enough for that, if nothing is spent in between.
  Instant AffordableAt(Duration cost, Instant now) const;

 private:
  // Up to kMostSaved, or what one thing costs that is dearer.
  Duration Saved(Duration cost, Instant now) const;

  static constexpr Duration kMostSaved = Seconds(3);

  int64_t cost_multiple_;
  Duration saved_;                // may be negative: the end of a turn needs no allowance
  std::optional<Instant> since_;  // it has been that much
};

// The typical value of something that repeats: the median of the last few. One long pause among
// many short ones does not move it.
class Recent {
 public:
  void Add(Duration value);
  std::optional<Duration> Typical() const;

 private:
  static constexpr size_t kKept = 8;
  std::array<Duration, kKept> values_;
  size_t count_ = 0;
};

// For how long something that pauses should go on holding what others wait for, learnt from how
// long it has paused before.
class Pauses {
 public:
  void Add(Duration value);

  // `price`: what it costs to take the thing away and to bring it back. Nothing, `price`, or twice
  // the length of a pause that was seen: which of these would have cost the least on average, where
  // a pause that ends in time costs its own length and any other the patience and the price. Many
  // short pauses teach to wait them out, and long ones among them not to wait much longer than
  // that. At most `price`, which is also the answer while nothing is known; no pause costs more
  // than twice that.
  //
  // Where twice the length of p is the best and L pauses were longer, the answer is
  // sqrt(price * p / L) if that is longer. The next short pause may exceed all before: that it
  // exceeds x is assumed to be as likely as p / x. Each of the L then costs x, and the one the
  // price.
  //
  // Until as many pauses were seen as are kept, one very short one is assumed among them.
  //
  // Ski rental with a known distribution: Karlin, Manasse, McGeoch, Owicki, "Competitive Randomized
  // Algorithms for Nonuniform Problems", Algorithmica 11 (1994).
  Duration Patience(Duration price) const;

 private:
  static constexpr size_t kKept = 64;
  std::vector<Duration> values_;  // the last kKept, in no order
  size_t next_ = 0;
};

struct TurnRules {
  Duration floor = Milliseconds(50);  // no turn is shorter, however cheap the switch
  int64_t cost_multiple = 20;         // a turn is this many switches long: switching stays ≤ 5 %
  bool alone = false;                 // turns also where all would fit: for tests
  int64_t time_scale = 1;  // what policies count in seconds is shorter by that: for tests

  // Turns of this length whatever a switch costs: for tests.
  void Fix(Duration turn) {
    floor = turn;
    cost_multiple = 0;
  }

  // How long a busy holder is protected against a newcomer whose switch costs `cost`.
  Duration Quantum(Duration cost) const;
};

// For how long a holder that pauses like this may stay idle before it gives way; zero: at once.
//
// `waiter_pauses`: the waiter is expected to go idle, for longer than a switch takes, within its
// own quantum: then its pause pays the way back and the cost counts once, else twice.
Duration IdlePatience(bool bytes_move, Duration cost, const Pauses& pauses, bool waiter_pauses);

}  // namespace tandem::core
