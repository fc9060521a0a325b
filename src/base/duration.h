// Durations as people write them.
#pragma once

#include <string>

#include "src/base/result.h"
#include "src/base/time.h"

namespace tandem {

// "2s", "500ms"; "0" is zero.
Result<Duration> ParseDuration(const std::string& text);

}  // namespace tandem
