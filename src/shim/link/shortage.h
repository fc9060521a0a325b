// Shortage: the bytes that the card lacks of those the daemon counts as free.
//
// A session brings back no more than it has credit for, and yet the driver may refuse: programs
// that are not shared may use the card, and what the program itself has there beside its memory
// (modules, graphs, small arrays in pages of their own) is not known to the byte. The daemon would
// evict no other session for it, and the program would wait for ever. So the session asks for what
// it lacks as for memory that cannot be swapped: others are evicted, and the daemon promises those
// bytes to no session for a while.
//
// Threading: the agent's.
#pragma once

#include <optional>

#include "src/base/bytes.h"
#include "src/base/time.h"
#include "src/shim/link/daemon_link.h"

namespace tandem::shim {

class Shortage {
 public:
  explicit Shortage(DaemonLink* link) : link_(link) {}

  // The card refused what there is credit for. The first few times that may pass by itself.
  void OnRefused(Instant now);
  void OnArrived() { refusals_ = 0; }
  // Takes note of the daemon's answer; gives back what was asked for long enough ago, for the card
  // may have it again.
  void Step(Instant now);

 private:
  void GiveBack(Bytes* bytes);

  DaemonLink* const link_;
  int refusals_ = 0;                // in a row
  std::optional<uint64_t> ticket_;  // of what was asked for and not answered
  Bytes asked_;                     // with it
  Bytes taken_;
  Instant until_;  // it is taken
};

}  // namespace tandem::shim
