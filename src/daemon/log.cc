#include "src/daemon/log.h"

#include <fcntl.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <fstream>
#include <memory>

#include "src/base/mutex.h"
#include "src/base/unique_fd.h"

namespace tandem::daemon {
namespace {

constexpr size_t kMaxLogBytes = 1 << 20;
constexpr size_t kOlderLogs = 1;  // tandemd.1.log beside tandemd.log

// The default logger again: spdlog lets no other thread ask for that while it is replaced.
Mutex shared_mutex;
std::shared_ptr<spdlog::logger> shared_logger GUARDED_BY(shared_mutex);

}  // namespace

Status OpenLog(const std::string& file) {
  std::shared_ptr<spdlog::sinks::sink> sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  if (!file.empty()) {
    if (!std::ofstream(file, std::ios::app)) {
      return Error{ErrorCode::kFailed, "cannot write to " + file};
    }
    sink = std::make_shared<spdlog::sinks::rotating_file_sink_mt>(file, kMaxLogBytes, kOlderLogs);
  }
  const auto logger = std::make_shared<spdlog::logger>("tandemd", std::move(sink));
  spdlog::set_default_logger(logger);
  spdlog::set_pattern("%Y-%m-%d %H:%M:%S.%e %l: %v");
  spdlog::flush_on(spdlog::level::info);
  const MutexLock lock(shared_mutex);
  shared_logger = logger;
  return {};
}

void SpeakToLog(const std::string& file) {
  const UniqueFd log(open(file.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (!log || isatty(STDERR_FILENO) == 1) return;
  dup2(log.get(), STDOUT_FILENO);
  dup2(log.get(), STDERR_FILENO);
}

void WarnFromThread(const std::string& line) {
  std::shared_ptr<spdlog::logger> logger;
  {
    const MutexLock lock(shared_mutex);
    logger = shared_logger;
  }
  logger->warn("{}", line);
}

}  // namespace tandem::daemon
