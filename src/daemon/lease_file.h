// Leases across restarts of the daemon, and the cgroups of their jobs.
#pragma once

#include <string>

#include "src/service/service.h"

namespace tandem::daemon {

// Gives the service the leases of the daemon before and a way to keep its own, in a file beside the
// socket: it ends with the machine's run, as jobs do.
void KeepLeases(const std::string& socket, service::ServiceConfig* config);

}  // namespace tandem::daemon
