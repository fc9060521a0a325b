// The specification of the GPUs as devices of containers, as the daemon writes it (--cdi).
//
// Threading: none.
#pragma once

#include <string>
#include <vector>

#include "src/service/service.h"

namespace tandem::daemon {

// Writes it to `file`, for the daemon whose socket is `socket`. The sizes go up to what could be
// shared if no program outside Tandem used the GPUs. One line in the log says what came of it.
void OfferToContainers(const std::string& file, const std::string& socket,
                       const std::vector<service::GpuInfo>& gpus);

}  // namespace tandem::daemon
