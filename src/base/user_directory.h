// The directory of a user's sockets and shared files.
//
// Threading: any thread.
#pragma once

#include <sys/types.h>

#include <string>

namespace tandem {

// Depends on the user alone, so that all processes of the user find the same one, with and without
// $XDG_RUNTIME_DIR, and a logout does not remove it: /tmp/tandem-<uid>. Where another user has
// taken that name it is /run/user/<uid>/tandem, provided that /run/user/<uid> is the user's own.
//
// The caller makes it, and checks that it is the user's own. `root`: where /tmp and /run are.
std::string UserDirectory(uid_t uid, const std::string& root = "");

}  // namespace tandem
