// `tandem trace`: the last minutes of the event log as a trace for Perfetto.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace tandem::cli {

// Declares the command. When it is used it puts what it does into `action`.
void AddTrace(CLI::App* app, std::function<int()>* action);

}  // namespace tandem::cli
