// The commands that show how things stand: `tandem ps`, `status`, `handovers`, `top` and
// `trace`.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>

namespace tandem::cli {

// Declares them. One that is used puts what it does into `action`.
void AddShowCommands(CLI::App* app, std::function<int()>* action);

// --gpu, which each command has that is about a daemon.
void AddGpu(CLI::App* command, std::optional<std::string>* gpu);

}  // namespace tandem::cli
