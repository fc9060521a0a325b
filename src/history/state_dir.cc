#include "src/history/state_dir.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>

#include "src/wire/runtime_dir.h"

namespace tandem::history {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string Home() {
  if (const std::string home = Variable("HOME"); !home.empty()) return home;
  const passwd* user = getpwuid(getuid());  // NOLINT(concurrency-mt-unsafe)
  return user != nullptr ? user->pw_dir : "";
}

}  // namespace

std::string StateDir() {
  if (const std::string dir = Variable("TANDEM_STATE_DIR"); !dir.empty()) return dir;
  if (const std::string dir = Variable("TANDEM_RUNTIME_DIR"); !dir.empty()) return dir + "/history";
  if (wire::IsEverybodys(wire::RuntimeDir())) return "/var/lib/tandem";
  const std::string state = Variable("XDG_STATE_HOME");
  return (state.empty() ? Home() + "/.local/state" : state) + "/tandem";
}

}  // namespace tandem::history
