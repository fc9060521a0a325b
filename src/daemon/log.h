// The daemon's own log, spdlog's default logger. Threading: as said.
#pragma once

#include <string>

#include "src/base/result.h"

namespace tandem::daemon {

// To `file`, or where that is empty to standard error. Again: opens it anew, for another program
// may have moved it. Main thread.
Status OpenLog(const std::string& file);

// Until then, what the daemon printed was for the command that started it; from now on, standard
// output and error go to the log's file, too. Main thread.
void SpeakToLog(const std::string& file);

// Any thread, after the first OpenLog.
void WarnFromThread(const std::string& line);

}  // namespace tandem::daemon
