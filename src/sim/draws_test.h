// What simulated users draw, for tests: from fixed seeds, so that a failure is the same each time.
#pragma once

#include <cmath>
#include <functional>
#include <random>

#include "src/base/testing/rounds.h"
#include "src/base/time.h"

namespace tandem::sim {

// Builds with sanitizers, which take far longer, see some of it, and only that nothing else is
// wrong.
inline constexpr bool kThorough = Rounds(5) == 5;

inline std::function<Duration()> Exponential(Duration mean, uint64_t seed) {
  return [mean, random = std::mt19937_64(seed)]() mutable {
    const double drawn = std::exponential_distribution<>(1.0)(random);
    return Duration(std::llround(drawn * static_cast<double>(mean.ns)));
  };
}

}  // namespace tandem::sim
