// The token that clients of another machine need.
//
// Threading: any thread.
#pragma once

#include <string>
#include <string_view>

#include "src/base/result.h"

namespace tandem::serve {

// The token in the file. Where it does not exist, it is made with a random token and mode 0600.
// kRefused: other users can read or write the file, or it is another user's.
Result<std::string> ReadOrMakeToken(const std::string& path);

// Takes the same time wherever the two differ, so that a client cannot guess one character after
// the other.
bool SameToken(std::string_view given, std::string_view token);

}  // namespace tandem::serve
