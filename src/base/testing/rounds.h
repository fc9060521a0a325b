// How often a test repeats what it does with ever different numbers.
#pragma once

#include <cstdint>

namespace tandem {

// As many rounds as show the same in this build: sanitizers take some ten times as long for each.
constexpr uint64_t Rounds(uint64_t count) {
#ifdef TANDEM_SANITIZED
  return (count + 4) / 5;
#else
  return count;
#endif
}

}  // namespace tandem
