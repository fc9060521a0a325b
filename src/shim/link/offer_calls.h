// What is said to the daemon about memory for other processes, each on a connection of its own.
//
// Threading: any thread. It waits for the daemon, but not for long.
// Errors: kRefused with the daemon's reason; kNotFound and kUnavailable where there is no daemon,
// or none that knows our session yet; others where it cannot be asked at all.
#pragma once

#include <string>

#include "src/base/result.h"
#include "src/base/unique_fd.h"
#include "src/shim/link/ipc_handle.h"

namespace tandem::shim {

// `device`: as FormatUuid prints its uuid.
Status OfferMemory(const OfferToken& token, const std::string& device, const UniqueFd& memory);
Result<UniqueFd> FetchMemory(const OfferToken& token);

}  // namespace tandem::shim
