// What `tandemd --spill DIR:SIZE` says, and the files in it.
#pragma once

#include <string>

#include "src/base/result.h"
#include "src/service/spill.h"

namespace tandem::daemon {

// "/var/tmp:64G". A size is needed, and the directory's own name may have colons.
Result<service::Spill> ParseSpill(const std::string& text);

// The same, if the file system is that large. One that cannot be asked passes: OpenSpillDirectory
// says why.
Result<service::Spill> FitsOnDisk(service::Spill spill);

// The same with what makes files there. An error where none can be made that room can be reserved
// for.
Result<service::Spill> OpenSpillDirectory(service::Spill spill);

}  // namespace tandem::daemon
