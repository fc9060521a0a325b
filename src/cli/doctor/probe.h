// Questions that a process of their own asks: NVIDIA's driver may hang, and the dynamic loader goes
// by the environment that a process started with.
//
// Threading: one thread; RunChild starts a process.
#pragma once

#include <string>
#include <vector>

#include "src/base/time.h"
#include "src/cli/environment.h"

namespace tandem::cli {

// `tandem probe WHAT`, hidden: prints a JSON object.
//   driver   whether NVIDIA's driver works: kind ("none", "works", "broken"), why
//   cards    what NVML says: a list `cards` of uuid, processes ([pid, bytes]), mig, compute
//   preload  whether the shim is loaded into this process: build, its version; null: it is not
inline constexpr const char* kProbes[] = {"driver", "cards", "preload"};
int PrintProbe(const std::string& what);

// What the program `command[0]`, a path, prints on standard output and standard error until it ends
// or `patience` is over; then it is killed.
std::string RunChild(const std::vector<std::string>& command, const Environment& environment,
                     Duration patience);

}  // namespace tandem::cli
