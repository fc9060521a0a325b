#include "src/shim/os/log.h"

#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace tandem::shim {
namespace {

LogLevel Threshold() {
  const char* wanted = std::getenv("TANDEM_LOG");
  if (wanted == nullptr) return LogLevel::kWarn;
  if (std::strcmp(wanted, "debug") == 0) return LogLevel::kDebug;
  if (std::strcmp(wanted, "info") == 0) return LogLevel::kInfo;
  return LogLevel::kWarn;
}

}  // namespace

bool LogEnabled(LogLevel level) {
  static const LogLevel threshold = Threshold();
  return level >= threshold;
}

void Log(LogLevel level, const char* format, ...) {
  if (!LogEnabled(level)) return;
  char line[512] = "tandem: ";
  const size_t prefix = std::strlen(line);
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line + prefix, sizeof(line) - prefix - 1, format, arguments);
  va_end(arguments);
  const size_t length = std::strlen(line);
  line[length] = '\n';
  // Nothing can be done about a lost line.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, length + 1);
}

}  // namespace tandem::shim
