// What `tandemd --spill DIR:SIZE` says.
#pragma once

#include <string>

#include "src/base/result.h"
#include "src/service/spill.h"

namespace tandem::daemon {

// "/var/tmp:64G". A size is needed, and the directory's own name may have colons.
Result<service::Spill> ParseSpill(const std::string& text);

// The same, if the file system is that large. One that cannot be asked, or does not answer, passes:
// SpillStore::Open says why.
Result<service::Spill> FitsOnDisk(service::Spill spill);

}  // namespace tandem::daemon
