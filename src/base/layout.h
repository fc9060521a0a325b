// Where Tandem's own files are, seen from its program: in the build tree and installed.
#pragma once

#include <string>

#include "src/base/result.h"

namespace tandem {

struct Layout {
  std::string daemon;    // tandemd
  std::string shim;      // libtandem.so
  std::string soft_dir;  // holds the software GPU's libcuda.so.1
};

// The files that belong to the program `executable`, a path like <root>/bin/tandem: the daemon
// beside it, the rest under <root>/lib. Says which is missing.
Result<Layout> LayoutOf(const std::string& executable);

// Of the running program.
Result<Layout> OwnLayout();

}  // namespace tandem
