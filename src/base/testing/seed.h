// What random tests begin with.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>

namespace tandem {

// TANDEM_SEED, so that a failure can be had again; otherwise ever another one, which the test
// prints.
inline uint64_t RandomSeed() {
  const char* given = std::getenv("TANDEM_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
}

}  // namespace tandem
