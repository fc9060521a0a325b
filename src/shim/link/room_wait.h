// RoomWait: one wait for room on the card that cannot be had by swapping, and what the user of the
// program is told about it. Pure: the time comes with each call.
//
// Threading: none of its own; the caller holds a lock.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "src/base/time.h"

namespace tandem::shim {

class RoomWait {
 public:
  // `what` the room is for, as in "room for WHAT"; `smaller`: less of it may be had sooner.
  RoomWait(std::string what, bool smaller, Instant now)
      : what_(std::move(what)), smaller_(smaller), since_(now) {}

  // Called from time to time while there is no answer. `counts`: the daemon is there, and the
  // program is not suspended. `bound`: how long it may wait; nothing where the daemon did not say.
  // Returns the line that is due, once.
  std::optional<std::string> OnPending(Instant now, bool counts, Duration bound);
  // The room was refused: the line that is due, where there was one before.
  std::optional<std::string> OnRefused(Instant now) const;
  // Until the answer comes no further line is due.
  bool told() const { return told_; }

 private:
  const std::string what_;
  const bool smaller_;
  Instant since_;
  bool told_ = false;
};

}  // namespace tandem::shim
