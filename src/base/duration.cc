#include "src/base/duration.h"

#include <cstdlib>

namespace tandem {

Result<Duration> ParseDuration(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  const double scale = unit == "s" ? 1e9 : unit == "ms" ? 1e6 : 0;
  if (text == "0") return Duration();
  if (text.empty() || text[0] < '0' || text[0] > '9' || scale == 0 || !(value * scale < 9e18)) {
    return Error{ErrorCode::kInvalid,
                 "'" + text + "' is not a duration; write for example 2s or 500ms"};
  }
  return Duration(static_cast<int64_t>(value * scale));
}

}  // namespace tandem
