#include "src/history/local_time.h"

#include <fmt/core.h>

#include <cstdlib>
#include <ctime>

namespace tandem::history {
namespace {

std::string DateAndTime(const tm& parts) {
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

tm LocalParts(int64_t unix_s) {
  const time_t seconds = unix_s;
  tm parts{};
  localtime_r(&seconds, &parts);
  return parts;
}

}  // namespace

int64_t NowUnixNs() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * kNsInSecond + now.tv_nsec;
}

std::string LocalTime(int64_t unix_s) {
  const tm parts = LocalParts(unix_s);
  const int64_t minutes = std::abs(parts.tm_gmtoff) / 60;
  return fmt::format("{}{}{:02}:{:02}", DateAndTime(parts), parts.tm_gmtoff < 0 ? '-' : '+',
                     minutes / 60, minutes % 60);
}

std::string UtcTime(int64_t unix_ns) {
  const int64_t fraction = (unix_ns % kNsInSecond + kNsInSecond) % kNsInSecond;
  const time_t seconds = (unix_ns - fraction) / kNsInSecond;
  tm parts{};
  gmtime_r(&seconds, &parts);
  return fmt::format("{}.{:06}Z", DateAndTime(parts), fraction / 1000);
}

int64_t DayBegin(int64_t unix_s, int days) {
  tm parts = LocalParts(unix_s);
  parts.tm_mday += days;
  parts.tm_hour = parts.tm_min = parts.tm_sec = 0;
  parts.tm_isdst = -1;
  return mktime(&parts);
}

}  // namespace tandem::history
