// WaitWatch: what a session of this process waits for, as the daemon tells it (wire::WatchWaits).
//
// Threading: none of its own; it belongs to the thread that waits.
#pragma once

#include <optional>

#include "src/base/time.h"
#include "src/wire/channel.h"

namespace tandem::shim {

class WaitWatch {
 public:
  // What the daemon has said since the last call; nothing where that is nothing. Connects where
  // there is no connection, from time to time.
  std::optional<wire::Waiting> Poll(Instant now);

 private:
  wire::Channel channel_;
  Instant connect_at_;
};

}  // namespace tandem::shim
