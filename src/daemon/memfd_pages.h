// The two pages of a session as sealed memfds. No process can resize them, so touching a mapping
// never faults; the decisions can be written through the daemon's mapping only.
#pragma once

#include "src/service/pages.h"

namespace tandem::daemon {

class MemfdPageMaker : public service::PageMaker {
 public:
  Result<std::unique_ptr<service::SessionPages>> Make() override;
};

}  // namespace tandem::daemon
