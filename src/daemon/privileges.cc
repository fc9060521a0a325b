#include "src/daemon/privileges.h"

#include <sys/capability.h>
#include <sys/prctl.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <type_traits>

namespace tandem::daemon {
namespace {

struct FreeCapabilities {
  void operator()(cap_t capabilities) const { cap_free(capabilities); }
};
using Capabilities = std::unique_ptr<std::remove_pointer_t<cap_t>, FreeCapabilities>;

constexpr std::array<cap_value_t, 2> kKept = {CAP_CHOWN, CAP_KILL};

// A set can only lose what the process had.
bool Keep(cap_t current, cap_t kept, cap_value_t capability) {
  cap_flag_value_t has = CAP_CLEAR;
  if (cap_get_flag(current, capability, CAP_PERMITTED, &has) != 0) return false;
  return cap_set_flag(kept, CAP_PERMITTED, 1, &capability, has) == 0 &&
         cap_set_flag(kept, CAP_EFFECTIVE, 1, &capability, has) == 0;
}

}  // namespace

Status DropPrivileges() {
  const auto failed = [] {
    return Error{ErrorCode::kFailed, std::string("cannot drop privileges: ") + strerror(errno)};
  };
  const Capabilities current(cap_get_proc()), kept(cap_init());
  if (current == nullptr || kept == nullptr) return failed();
  for (const cap_value_t capability : kKept) {
    if (!Keep(current.get(), kept.get(), capability)) return failed();
  }
  if (cap_set_proc(kept.get()) != 0) return failed();
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return failed();
  return {};
}

}  // namespace tandem::daemon
