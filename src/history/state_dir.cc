#include "src/history/state_dir.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "src/wire/runtime_dir.h"

namespace tandem::history {
namespace {

// Empty where the variable is not set.
std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string Home() {
  if (const std::string home = Variable("HOME"); !home.empty()) return home;
  const passwd* const user = getpwuid(getuid());  // NOLINT(concurrency-mt-unsafe)
  return user != nullptr ? user->pw_dir : "";
}

}  // namespace

std::string StateDir() {
  if (const std::string set = Variable("TANDEM_STATE_DIR"); !set.empty()) return set;
  if (const std::string set = Variable("TANDEM_RUNTIME_DIR"); !set.empty()) return set + "/history";
  if (getuid() == 0 || wire::IsEverybodys(wire::RuntimeDir())) return "/var/lib/tandem";
  if (const std::string set = Variable("XDG_STATE_HOME"); !set.empty()) return set + "/tandem";
  const std::string home = Home();
  return home.empty() ? "" : home + "/.local/state/tandem";
}

Status MakeStateDir(bool everybody_reads) {
  const std::string dir = StateDir();
  if (dir.empty())
    return Error{ErrorCode::kNotFound,
                 "this user has no home directory, and TANDEM_STATE_DIR is not set"};
  std::error_code error;
  std::filesystem::create_directories(dir, error);  // umask: for this user alone
  if (error) return Error{ErrorCode::kFailed, dir + ": " + error.message()};
  struct stat info;
  const bool own = stat(dir.c_str(), &info) == 0 && info.st_uid == geteuid();
  const mode_t mode = everybody_reads ? 0711 : 0700;
  if (own && (info.st_mode & 0777) != mode && chmod(dir.c_str(), mode) != 0) {
    return Error{ErrorCode::kFailed, "cannot change the mode of " + dir};
  }
  return {};
}

std::string StateFile(const std::string& name, const std::string& ending) {
  const std::string dir = StateDir();
  if (dir.empty()) return "";
  return dir + "/" + name + (Variable("TANDEM_GPU") == "soft" ? "-soft" : "") + ending;
}

}  // namespace tandem::history
