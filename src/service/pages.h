// SessionPages: the two pages a session shares with the daemon (src/wire/pages.h), as the service
// sees them. The daemon backs them with sealed memfds, tests with plain memory.
#pragma once

#include <memory>
#include <vector>

#include "src/base/result.h"
#include "src/wire/pages.h"

namespace tandem::service {

class SessionPages {
 public:
  virtual ~SessionPages() = default;
  virtual wire::DecisionsPage& decisions() = 0;
  virtual const wire::ReportsPage& reports() const = 0;
  // To send with Registered: decisions, then reports. They stay owned by this object.
  virtual std::vector<int> fds() const = 0;
};

class PageMaker {
 public:
  virtual ~PageMaker() = default;
  virtual Result<std::unique_ptr<SessionPages>> Make() = 0;
};

}  // namespace tandem::service
