#include "src/cli/doctor/doctor.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "src/base/json.h"
#include "src/base/unique_fd.h"
#include "src/cli/doctor/bundle.h"
#include "src/cli/doctor/report.h"
#include "src/cli/print.h"
#include "src/wire/runtime_dir.h"

namespace tandem::cli {
namespace {

using Json = nlohmann::json;

constexpr std::streamoff kMostLog = 64 << 10;

// The end of the log of this user's daemon.
std::string LogTail() {
  std::ifstream log(wire::OwnFile(".log"), std::ios::ate);
  if (!log) return "";
  const std::streamoff size = log.tellg();
  log.seekg(size > kMostLog ? size - kMostLog : 0);
  std::string text(std::istreambuf_iterator<char>(log), {});
  // The rest of a line that was cut.
  if (size > kMostLog) text.erase(0, text.find('\n') + 1);
  return text;
}

Status WriteBundle(const std::string& file, const Json& bundle) {
  const auto failed = [&file] {
    return Error{ErrorCode::kFailed, "cannot write " + file + ": " + std::strerror(errno)};
  };
  const UniqueFd fd(open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd) return failed();
  const std::string text = JsonText(bundle, 2) + "\n";
  for (size_t written = 0; written < text.size();) {
    const ssize_t n = write(fd.get(), text.data() + written, text.size() - written);
    if (n < 0 && errno != EINTR) return failed();
    if (n > 0) written += static_cast<size_t>(n);
  }
  return {};
}

}  // namespace

int Doctor(const DoctorOptions& options) {
  const Result<Machine> machine = LookAtMachine(options.gpu, options.program);
  if (!machine.ok()) return Fail(machine.error());
  const std::vector<CheckResult> results = RunChecks(*machine);
  if (!options.bundle.empty()) {
    const Status written = WriteBundle(options.bundle, Bundle(*machine, results, LogTail()));
    if (!written.ok()) return Fail(written.error());
  }
  std::string text = options.json ? AsciiJson(ReportJson(*machine, results, &Shown)) + "\n"
                                  : ReportText(results, OwnScreen());
  if (!options.bundle.empty() && !options.json) {
    text += "Wrote " + Shown(Outside(options.bundle)) + " for a bug report; read it first.\n";
  }
  const int printed = Print(text);
  return printed != 0 || WorstOf(results) == Severity::kProblem ? 1 : 0;
}

}  // namespace tandem::cli
