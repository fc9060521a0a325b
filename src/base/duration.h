// Durations as people write them.
#pragma once

#include <string>

#include "src/base/result.h"
#include "src/base/time.h"

namespace tandem {

// "500ms", "2s", "5m" (or "5min"), "1h"; "0" is zero.
Result<Duration> ParseDuration(const std::string& text);

}  // namespace tandem
