// Names of users. The users' directory may be far, on the net: the daemon's main thread must not
// ask.
//
// Threading: any thread.
#pragma once

#include <string>

#include "src/base/result.h"

namespace tandem {

// The name of the user, or the number of one that has none.
std::string UserNameOf(unsigned uid);

// The number of the user `text`, a name or a number. kInvalid: there is no such user.
Result<unsigned> UserNumberOf(const std::string& text);

}  // namespace tandem
