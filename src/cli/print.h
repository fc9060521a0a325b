// What `tandem` prints. A failed write does not end it: a guard has a program to look after, and
// the reader of its messages may be gone.
#pragma once

#include <string>

#include "src/base/result.h"

namespace tandem::cli {

// "tandem: message" on standard error, escaped; returns `status`.
int Fail(int status, const std::string& message);

// The same; returns 2 where the error is kInvalid, a mistake of the command line, else 1.
int Fail(const Error& error);

// `text` on standard output. The exit status: 1, after saying why, where it cannot be written.
int Print(const std::string& text);

}  // namespace tandem::cli
