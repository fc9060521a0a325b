// A program's manual page, made from its declared options so that it cannot lag behind them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tandem::usage {

// In the language of man(7). Commands and options without a group are hidden, here as in `--help`.
std::string ManualPage(const CLI::App& app, int section, const std::string& version);

}  // namespace tandem::usage
