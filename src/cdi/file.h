// The file of the specification, which container runtimes read.
//
// Threading: none; one writer at a time.
#pragma once

#include <string>

#include "src/base/result.h"

namespace tandem::cdi {

// Makes the folder, too. A runtime that reads it meanwhile sees the old file or the new one. All
// users may read it, whatever the umask. kFailed, with the file's name.
Status WriteSpec(const std::string& file, const std::string& text);

}  // namespace tandem::cdi
