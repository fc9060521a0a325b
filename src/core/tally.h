// Tally: what one session adds to what the arbiter wants to know of all sessions of its GPU.
#pragma once

#include <cstdint>
#include <optional>

#include "src/base/bytes.h"
#include "src/base/time.h"

namespace tandem::core {

// Of all sessions together.
struct Sums {
  Bytes held;             // what holders that answer have or need, whichever is more
  Bytes immovable;        // charged for what cannot be counted on to leave
  Bytes coming;           // that is leaving, and can be counted on
  Bytes evictable;        // that could be asked to leave
  Bytes excess;           // Session::excess
  Bytes wanted;           // by those who hold or wait for a lease
  uint32_t holders = 0;   // that answer
  uint32_t revoking = 0;  // of them
  uint32_t wanting = 0;   // hold or wait for a lease
  uint32_t working = 0;   // Session::working

  bool operator==(const Sums&) const = default;
  Sums& operator+=(const Sums& other) {
    held += other.held;
    immovable += other.immovable;
    coming += other.coming;
    evictable += other.evictable;
    excess += other.excess;
    wanted += other.wanted;
    holders += other.holders;
    revoking += other.revoking;
    wanting += other.wanting;
    working += other.working;
    return *this;
  }
  // REQUIRES: `other` is one of those that were added.
  Sums& operator-=(const Sums& other) {
    held -= other.held;
    immovable -= other.immovable;
    coming -= other.coming;
    evictable -= other.evictable;
    excess -= other.excess;
    wanted -= other.wanted;
    holders -= other.holders;
    revoking -= other.revoking;
    wanting -= other.wanting;
    working -= other.working;
    return *this;
  }
};

struct Tally {
  Sums sums;
  std::optional<Bytes> asked;  // what it needs for the lease that it waits for
  bool keeps_memory = false;   // waits for a lease, and has memory on the card
  // What the card must have room for, or the session could never run. Nothing of one whose wishes
  // do not count.
  Bytes must_hold;
  // Whether it is one of those, in the roster's sets.
  bool holds = false;
  bool wants_contexts = false;
  bool wants_fixed = false;
  bool need_is_cut = false;
  bool yields = false;                  // to a session
  bool uncleared = false;               // is suspended, and something must be asked of it
  std::optional<Instant> expected_at;   // something is to come from it by then
  std::optional<Instant> blocks_since;  // as Session's
  std::optional<Instant> unused_since;  // as Session::UnusedSince
  bool waits_for_promise = false;       // lapsed, and waits
  // It could be asked to leave and waits for no lease: since when it has not been used.
  std::optional<Instant> cold_since;

  bool operator==(const Tally&) const = default;
};

}  // namespace tandem::core
