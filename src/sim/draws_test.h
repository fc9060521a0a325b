// What simulated users draw, for tests: from fixed seeds, so that a failure is the same each time.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <optional>
#include <random>
#include <vector>

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

// Of random worlds: TANDEM_SEED=n is the only one, TANDEM_WORLDS=n takes the place of `count`.
// `first`: where neither is set, the first seed; the others follow it. None: drawn each time.
inline std::vector<uint64_t> Seeds(uint64_t count, std::optional<uint64_t> first = std::nullopt) {
  if (const char* seed = std::getenv("TANDEM_SEED"); seed != nullptr) {
    return {std::strtoull(seed, nullptr, 10)};
  }
  if (const char* worlds = std::getenv("TANDEM_WORLDS"); worlds != nullptr) {
    count = std::strtoull(worlds, nullptr, 10);
    first.reset();
  }
  if (!first.has_value()) first = std::random_device()();
  std::vector<uint64_t> seeds;
  for (uint64_t i = 0; i < count; ++i) seeds.push_back(*first + i);
  return seeds;
}

}  // namespace tandem::sim
