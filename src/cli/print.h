// What `tandem` prints. A failed write does not end it: a guard has a program to look after, and
// the reader of its messages may be gone.
#pragma once

#include <string>

namespace tandem::cli {

// "tandem: message" on standard error, escaped; returns `status`.
int Fail(int status, const std::string& message);

// `text` on standard output. The exit status: 1, after saying why, where it cannot be written.
int Print(const std::string& text);

}  // namespace tandem::cli
