// Lines on stderr for the user of the program we are a guest in: prefix "tandem: ", warnings only
// unless TANDEM_LOG=debug|info asks for more.
//
// Threading: any thread; a line is one write. Never allocates before the first line is due.
#pragma once

namespace tandem::shim {

enum class LogLevel { kDebug, kInfo, kWarn };

bool LogEnabled(LogLevel level);
void Log(LogLevel level, const char* format, ...) __attribute__((format(printf, 2, 3)));

}  // namespace tandem::shim
