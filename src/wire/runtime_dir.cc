#include "src/wire/runtime_dir.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "src/base/user_directory.h"

namespace tandem::wire {
namespace {

constexpr char kMachineDir[] = "/run/tandem";
constexpr mode_t kEverybodys = 0711;

// Empty where the variable is not set.
std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string PersonalDir() {
  return getuid() == 0 ? kMachineDir : UserDirectory(getuid());
}

std::string NameFor(const std::string& dir, const char* ending) {
  return dir + (Variable("TANDEM_GPU") == "soft" ? "/tandemd-soft" : "/tandemd") + ending;
}

Status Make(const std::string& dir) {
  if (mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST) {
    return Error{ErrorCode::kFailed, "cannot make " + dir + ": " + std::strerror(errno) +
                                         "; set TANDEM_RUNTIME_DIR to a directory of your own"};
  }
  struct stat info;
  if (lstat(dir.c_str(), &info) != 0) {
    return Error{ErrorCode::kFailed, dir + ": " + std::strerror(errno)};
  }
  if (!S_ISDIR(info.st_mode) || info.st_uid != getuid() || (info.st_mode & 022) != 0) {
    return Error{ErrorCode::kRefused,
                 dir +
                     " must be a directory of your own that others cannot write to; remove it, or "
                     "set TANDEM_RUNTIME_DIR to a directory of your own"};
  }
  return {};
}

std::string MachineDir() {
  const std::string set = Variable("TANDEM_RUNTIME_DIR");
  return set.empty() ? kMachineDir : set;
}

}  // namespace

bool IsEverybodys(const std::string& dir) {
  struct stat info;
  return lstat(dir.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == 0 &&
         (info.st_mode & 0777) == kEverybodys;
}

std::string RuntimeDir() {
  if (const std::string dir = Variable("TANDEM_RUNTIME_DIR"); !dir.empty()) return dir;
  return IsEverybodys(kMachineDir) ? kMachineDir : PersonalDir();
}

bool RootStartsTheDaemon() {
  return getuid() != 0 && IsEverybodys(RuntimeDir());
}

Status MakeRuntimeDir() {
  return Make(RuntimeDir());
}

Status MakeEverybodysDir() {
  if (getuid() != 0) {
    return Error{ErrorCode::kRefused, "only root can serve all users: run this as root"};
  }
  const std::string dir = MachineDir();
  TRY(Make(dir));
  if (chmod(dir.c_str(), kEverybodys) == 0) return {};
  return Error{ErrorCode::kFailed, "cannot open " + dir + " to all users: " + std::strerror(errno)};
}

void CloseEverybodysDir() {
  chmod(MachineDir().c_str(), 0700);
}

std::string OwnDir() {
  return RootStartsTheDaemon() ? PersonalDir() : RuntimeDir();
}

Status MakeOwnDir() {
  return Make(OwnDir());
}

std::string SocketPath() {
  return NameFor(RuntimeDir(), ".sock");
}

std::string DisplacedNote() {
  const std::string dir = OwnDir();
  const std::string usual = UsualUserDirectory(getuid());
  const bool displaced = Variable("TANDEM_RUNTIME_DIR").empty() && getuid() != 0 && dir != usual;
  return displaced ? usual + " belongs to another user; the daemon listens in " + dir : "";
}

std::string OwnFile(const char* ending) {
  return NameFor(OwnDir(), ending);
}

}  // namespace tandem::wire
