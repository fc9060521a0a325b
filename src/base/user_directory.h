// The directory of a user's sockets and shared files.
//
// Threading: any thread.
#pragma once

#include <sys/types.h>

#include <string>

namespace tandem {

// Depends on the user alone, so that all processes of the user find the same one, with and without
// $XDG_RUNTIME_DIR, and a logout does not remove it: /tmp/tandem-<uid>. Any user can make that name
// first. So it is the first that the user owns of: that one; /run/user/<uid>/tandem, where
// /run/user/<uid> is the user's own; /tmp/tandem-<uid>.1 to .8. Where the user owns none of them,
// it is the first that does not exist; where others have taken all, the usual name.
//
// The caller makes it, and checks that it is the user's own. `root`: where /tmp and /run are.
std::string UserDirectory(uid_t uid, const std::string& root = "");

// /tmp/tandem-<uid>.
std::string UsualUserDirectory(uid_t uid, const std::string& root = "");

}  // namespace tandem
