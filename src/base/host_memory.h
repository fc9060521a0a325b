// How much memory the host has left.
#pragma once

#include <optional>
#include <string>

#include "src/base/bytes.h"

namespace tandem {

// What this process and those beside it may still take: what the kernel says is available, and no
// more than its control groups leave of their limits (what they could drop of files counts as
// left). Where nothing says, all that can be said in 64 bits. `root`: where /proc and /sys are.
//
// For tests: while there is a file of the name that the environment variable
// TANDEM_HOST_AVAILABLE_FILE had when the program started, it is the number of bytes in that file.
Bytes AvailableHostMemory(const std::string& root = "");
// The same, with the name of that file.
Bytes AvailableHostMemory(const std::string& root, const std::string& file);

// The lowest limit of the memory control groups that this process is in; none where they have none.
// In version 1, a group without one says a number that is larger than any host.
std::optional<Bytes> ControlGroupLimit(const std::string& root = "");

// RAM and swap space of the host, used or not; where nothing says, all that can be said in 64 bits.
Bytes TotalHostMemory(const std::string& root = "");

}  // namespace tandem
