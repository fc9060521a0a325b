// Which file the daemon writes its event log or its accounts to.
#pragma once

#include <string>

#include "src/base/result.h"

namespace tandem::cli {

// What `tandem status --json` has as `field`; where no daemon runs, `usual`. kNotFound: the daemon
// writes none, since it was started with `option`. REQUIRES: ChooseGpu has said which daemon.
Result<std::string> HistoryFile(const char* field, const std::string& usual, const char* option);

}  // namespace tandem::cli
