// The rules of turns: what a switch costs, how long a turn is protected, and when an idle holder
// gives way. Pure arithmetic on measured durations; the arbiter asks.
//
// Threading: none.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "src/base/bytes.h"
#include "src/base/time.h"

namespace tandem::core {

// What it costs to hand a GPU over, learnt from hand-overs: a part that is always there (draining,
// messages) and a part per byte the newcomer lacks.
class SwitchCost {
 public:
  // Until something is measured, bytes are taken to move at `bytes_per_second`.
  explicit SwitchCost(double bytes_per_second) : seconds_per_byte_(1.0 / bytes_per_second) {}

  Duration Estimate(Bytes lacked) const;
  void Learn(Bytes lacked, Duration took);

 private:
  double base_seconds_ = 1e-3;
  double seconds_per_byte_;
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

struct TurnRules {
  Duration floor = Milliseconds(50);  // no turn is shorter, however cheap the switch
  int64_t cost_multiple = 20;         // a turn is this many switches long: switching stays ≤ 5 %
  bool alone = false;                 // turns also where all would fit: for tests

  // Turns of this length whatever a switch costs: for tests.
  void Fix(Duration turn) {
    floor = turn;
    cost_multiple = 0;
  }

  // How long a busy holder is protected against a newcomer whose switch costs `cost`.
  Duration Quantum(Duration cost) const;
};

// For how long an idle holder may stay idle before it gives way; zero: at once.
//
// `gap`: how long it is expected to stay idle, if known. `waiter_pauses`: the waiter is expected to
// go idle, for longer than a switch takes, within its own quantum: then its gap pays the way back
// and the cost counts once, else twice.
Duration IdlePatience(bool bytes_move, Duration cost, std::optional<Duration> gap,
                      bool waiter_pauses);

}  // namespace tandem::core
