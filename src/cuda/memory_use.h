// MemoryUse: how much of a card's memory is in use, and by which processes. NVML is asked, which
// takes no context. A process whose driver hangs hangs with it: ask in a child process.
#pragma once

#include <map>
#include <string>

#include "src/base/bytes.h"
#include "src/base/result.h"

namespace tandem::cuda {

struct MemoryUse {
  // Of one process, while the card was looked at.
  struct Range {
    Bytes least, most;
  };
  Bytes free;
  std::map<int, Range> processes;  // by pid; without those whose use NVML does not tell
};

// By the uuid of the GPU, as FormatUuid prints it. kNotFound without NVML.
Result<std::map<std::string, MemoryUse>> ReadMemoryUse();

}  // namespace tandem::cuda
