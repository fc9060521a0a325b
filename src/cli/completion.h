// Shell completion, made from the declared options so that it cannot lag behind them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tandem::cli {

std::vector<std::string> CompletionShells();

// REQUIRES: `shell` is one of CompletionShells().
std::string CompletionScript(const std::string& shell, const CLI::App& app);

}  // namespace tandem::cli
