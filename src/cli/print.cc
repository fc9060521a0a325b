#include "src/cli/print.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "src/base/text.h"
#include "src/usage/usage.h"

namespace tandem::cli {
namespace {

bool WriteAll(int fd, const std::string& text) {
  for (size_t written = 0; written < text.size();) {
    const ssize_t n = write(fd, text.data() + written, text.size() - written);
    if (n < 0 && errno != EINTR) return false;
    if (n > 0) written += static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

int Fail(int status, const std::string& message) {
  WriteAll(STDERR_FILENO, "tandem: " + EscapeText(message) + "\n");
  return status;
}

int Fail(const Error& error) {
  return Fail(error.code == ErrorCode::kInvalid ? usage::kExitUsage : 1, error.message);
}

int Print(const std::string& text) {
  if (WriteAll(STDOUT_FILENO, text)) return 0;
  return Fail(1, std::string("cannot write to standard output: ") + std::strerror(errno));
}

}  // namespace tandem::cli
