// Points in time as people write them.
//
// Threading: any thread, as long as none changes the time zone.
#pragma once

#include <cstdint>
#include <string>

#include "src/base/result.h"

namespace tandem::cli {

// "now"; so long ago: "30m", "12h", "7d", "4w"; the begin of "today", "yesterday" or the last
// "monday"; "2026-11-25", "2026-11-25T07:00", "2026-11-25 07:00:30", "2026-11-25T07:00:00+01:00".
// In nanoseconds of Unix time.
Result<int64_t> ParseWhen(const std::string& text, int64_t now_ns);

}  // namespace tandem::cli
