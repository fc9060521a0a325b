// `tandem names`: what completion offers of what runs. It is hidden from the list of commands.
#pragma once

#include <string>

namespace tandem::cli {

// The numbers of sessions and the names of runs, a line each, from the daemon's answer to
// "sessions". A shell may expand them: names that have anything but letters, digits and "._+:@-"
// are left out.
std::string SessionNames(const std::string& sessions);

// "gpu0", "gpu1", … and "all", from the daemon's answer to "status".
std::string GpuNames(const std::string& status);

// Prints those of `what`, "sessions" or "gpus"; nothing where no daemon answers.
int PrintNames(const std::string& what);

}  // namespace tandem::cli
