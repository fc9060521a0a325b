// `tandem run`: a program shares the GPU, and otherwise runs as if started without it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/base/result.h"

namespace tandem::cli {

// How `tandem run` ends where the program itself never ran, as shells and env(1) have it.
inline constexpr int kExitOwnError = 125;
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;

struct RunOptions {
  std::optional<std::string> memory;
  std::string name;
  std::string of_class;  // empty: the usual one
  std::optional<std::string> gpu;
  bool unshared = false;
  bool oversubscribe = false;
  bool quiet = false;  // about waits and the kind of GPU
  std::vector<std::string> command;
};

// Returns only where the program could not be run: the exit status, after saying why. Otherwise
// this process ends as the program does.
int Run(const RunOptions& options);

}  // namespace tandem::cli
