// Where a program itself tells the dynamic loader to look for libraries.
//
// Reads files; starts nothing.
#pragma once

#include <string>
#include <vector>

namespace tandem::cli {

struct LibraryPaths {
  std::vector<std::string> rpath;    // searched before LD_LIBRARY_PATH
  std::vector<std::string> runpath;  // searched after it
};

// Of the 64-bit ELF file `file`, $ORIGIN replaced. Both are empty where it is none. As for the
// loader, an rpath does not count beside a runpath.
LibraryPaths LibraryPathsOf(const std::string& file);

// `list` cut at each of `separators`, without empty parts.
std::vector<std::string> PartsOf(const std::string& list, const char* separators);

}  // namespace tandem::cli
