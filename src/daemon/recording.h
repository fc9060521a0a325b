// What the options say of the event log and the accounts.
#pragma once

#include "src/daemon/options.h"
#include "src/service/service.h"

namespace tandem::daemon {

// Lets the service's records be written as long as the service lives. REQUIRES: signals are
// blocked, so that the thread that writes gets none; `config` says whether the daemon is for all
// users.
void RecordHistory(const Options& options, service::ServiceConfig* config);

}  // namespace tandem::daemon
