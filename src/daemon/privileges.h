// What a daemon of root's gives up once it has found the cards.
//
// Threading: before the process has a second thread: each thread has privileges of its own.
#pragma once

#include "src/base/result.h"

namespace tandem::daemon {

// Gives up all capabilities but those that give a file to its user and end a user's process, and
// lets no program that this one starts have more. Any user may call it.
Status DropPrivileges();

}  // namespace tandem::daemon
