// Finding the program to run, and telling whether the dynamic loader will take the shim into it.
//
// Reads files; starts nothing.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "src/base/result.h"

namespace tandem::cli {

// The file a shell would run for `name` with this PATH.
// Errors: kNotFound, or kRefused where it is there but cannot be executed.
Result<std::string> FindProgram(const std::string& name, const std::string& path);

// The program that the kernel loads for `file`: a script stands for its interpreter, and
// `#!/usr/bin/env NAME` for NAME in `path`. Empty where there is none.
std::string ExecutedFile(const std::string& file, const std::string& path);

// Why the program at `file` cannot take the shim when user `uid` runs it, for people; nothing if it
// can. It is ExecutedFile's that counts.
std::optional<std::string> WhyNotShareable(const std::string& file, const std::string& path,
                                           uid_t uid);

}  // namespace tandem::cli
