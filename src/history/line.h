// A record as a line of the event log: a JSON object. docs/events.md lists them.
//
// Pure. Threading: any.
#pragma once

#include <string>

#include "src/history/record.h"

namespace tandem::history {

inline constexpr int kEventFormat = 1;

// Without the line's end. Empty where the log has no such line: a copy's progress, whose sum comes
// with the hand-over, a tick of the clock, and memory that an arbiter grants at once.
std::string LineOf(const Record& record);

}  // namespace tandem::history
