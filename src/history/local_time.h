// Times of the calendar, as the reader's time zone has them.
//
// Threading: any thread, as long as none changes the time zone.
#pragma once

#include <cstdint>
#include <string>

namespace tandem::history {

inline constexpr int64_t kNsInSecond = 1'000'000'000;
inline constexpr int64_t kHour = 3600;  // seconds

int64_t NowUnixNs();

// "2026-11-25T08:00:00+01:00".
std::string LocalTime(int64_t unix_s);
// "2026-11-25T07:00:00.123456Z".
std::string UtcTime(int64_t unix_ns);

// When the day begins that has this second, and the day that comes `days` after it.
int64_t DayBegin(int64_t unix_s, int days = 0);

}  // namespace tandem::history
