#include "src/base/duration.h"

#include <cstdlib>

namespace tandem {

Result<Duration> ParseDuration(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  double scale = 0;  // ns
  if (unit == "ms") scale = 1e6;
  if (unit == "s") scale = 1e9;
  if (unit == "m" || unit == "min") scale = 60e9;
  if (unit == "h") scale = 3600e9;
  if (text == "0") return Duration();
  if (text.empty() || text[0] < '0' || text[0] > '9' || scale == 0 || !(value * scale < 9e18)) {
    return Error{ErrorCode::kInvalid,
                 "'" + text + "' is not a duration; write for example 500ms, 2s, 5m or 1h"};
  }
  return Duration(static_cast<int64_t>(value * scale));
}

}  // namespace tandem
