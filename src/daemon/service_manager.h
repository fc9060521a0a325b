// ServiceManager: what systemd is told of the daemon that it started (sd_notify(3)).
//
// Threading: any thread.
#pragma once

#include <optional>
#include <string>

#include "src/base/time.h"

namespace tandem::daemon {

class ServiceManager {
 public:
  // From NOTIFY_SOCKET and WATCHDOG_USEC, which children do not inherit.
  static ServiceManager FromEnvironment();

  // "READY=1", "WATCHDOG=1", "RELOADING=1", "STOPPING=1". Nothing where no manager listens.
  void Tell(const std::string& state) const;
  // How often it wants to hear WATCHDOG=1: half of the time after which it gives the daemon up.
  std::optional<Duration> heartbeat() const { return heartbeat_; }

 private:
  std::string socket_;  // empty: none
  std::optional<Duration> heartbeat_;
};

}  // namespace tandem::daemon
