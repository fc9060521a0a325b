// Amounts: what sessions used, in the units of the accounts.
//
// Invariants: times are whole nanoseconds, so that sums of them are exact. The parts of an amount
// that is cut add up to it.
#pragma once

#include <cstdint>

#include "src/history/usage.h"

namespace tandem::history {

struct Amounts {
  uint64_t held_ns = 0;
  uint64_t active_ns = 0;
  uint64_t waited_ns = 0;
  double allocated_byte_s = 0;
  double resident_byte_s = 0;
  double swapped_byte_s = 0;
  uint64_t handovers = 0;
  uint64_t out_bytes = 0;
  uint64_t in_bytes = 0;

  Amounts& operator+=(const Amounts& other);
};

// A negative or impossible amount counts as nothing.
Amounts AmountsOf(const Usage& usage);

// What of `whole`, spread evenly, lies between these two parts of it. REQUIRES: 0 ≤ from ≤ to ≤ 1.
Amounts Part(const Amounts& whole, double from, double to);

}  // namespace tandem::history
