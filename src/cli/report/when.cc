#include "src/cli/report/when.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <ctime>
#include <iterator>
#include <optional>

#include "src/history/local_time.h"

namespace tandem::cli {
namespace {

using history::DayBegin;
using history::kHour;
using history::kNsInSecond;

constexpr int64_t kMostSeconds = 9'000'000'000;  // the year 2255; in nanoseconds they fit 64 bits
constexpr const char* kWeekdays[] = {"sunday",   "monday", "tuesday", "wednesday",
                                     "thursday", "friday", "saturday"};

// "7d": seconds.
std::optional<double> ParseAge(const std::string& text) {
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text[0])) == 0) return std::nullopt;
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  const double scale = unit == "s"                    ? 1
                       : unit == "m" || unit == "min" ? 60
                       : unit == "h"                  ? kHour
                       : unit == "d"                  ? 24 * kHour
                       : unit == "w"                  ? kHour * 24 * 7
                                                      : 0;
  if (scale == 0 || !(number * scale < kMostSeconds)) return std::nullopt;
  return number * scale;
}

// The begin of the day that `word` names.
std::optional<int64_t> ParseDay(const std::string& word, int64_t now_s) {
  if (word == "today") return DayBegin(now_s);
  if (word == "yesterday") return DayBegin(now_s, -1);
  const auto* const weekday = std::find(std::begin(kWeekdays), std::end(kWeekdays), word);
  if (weekday == std::end(kWeekdays)) return std::nullopt;
  const time_t now = now_s;
  tm parts{};
  localtime_r(&now, &parts);
  const auto wanted = static_cast<int>(weekday - std::begin(kWeekdays));
  return DayBegin(now_s, -((parts.tm_wday - wanted + 7) % 7));
}

// "Z", "+01:00"; seconds east of Greenwich.
std::optional<int64_t> ParseOffset(const char* text) {
  const std::string offset = text;
  if (offset == "Z" || offset == "z") return 0;
  tm parts{};
  const bool signed_ = offset.size() == 6 && (offset[0] == '+' || offset[0] == '-');
  const char* const end = signed_ ? strptime(text + 1, "%H:%M", &parts) : nullptr;
  if (end == nullptr || *end != 0) return std::nullopt;
  return (offset[0] == '-' ? -1 : 1) * (parts.tm_hour * kHour + parts.tm_min * int64_t{60});
}

// A date, with or without a time and an offset.
std::optional<int64_t> ParseDate(const std::string& text) {
  tm parts{};
  const char* rest = strptime(text.c_str(), "%Y-%m-%d", &parts);
  if (rest == nullptr) return std::nullopt;
  const int day = parts.tm_mday;
  parts.tm_isdst = -1;
  if (*rest == 'T' || *rest == 't' || *rest == ' ') {
    rest = strptime(rest + 1, "%H:%M", &parts);
    if (rest == nullptr) return std::nullopt;
    if (*rest == ':') rest = strptime(rest + 1, "%S", &parts);
    if (rest == nullptr) return std::nullopt;
    if (*rest == '.') rest += 1 + std::string(rest + 1).find_first_not_of("0123456789");
  }
  std::optional<int64_t> offset;
  if (*rest != 0) {
    offset = ParseOffset(rest);
    if (!offset.has_value()) return std::nullopt;
  }
  const int64_t second = offset.has_value() ? timegm(&parts) - *offset : mktime(&parts);
  // 31 February would be a day in March.
  return parts.tm_mday == day ? std::optional(second) : std::nullopt;
}

}  // namespace

Result<int64_t> ParseWhen(const std::string& text, int64_t now_ns) {
  std::string word = text;
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (word == "now") return now_ns;
  if (const auto age = ParseAge(word)) {
    return now_ns - static_cast<int64_t>(*age * static_cast<double>(kNsInSecond));
  }
  auto second = ParseDay(word, now_ns / kNsInSecond);
  if (!second.has_value()) second = ParseDate(text);
  if (!second.has_value() || *second < -kMostSeconds || *second > kMostSeconds) {
    return Error{ErrorCode::kInvalid,
                 "'" + text +
                     "' is not a time; write for example 30m, 12h, 7d, today, yesterday, monday, "
                     "2026-11-25 or 2026-11-25T07:00+01:00"};
  }
  return *second * kNsInSecond;
}

}  // namespace tandem::cli
