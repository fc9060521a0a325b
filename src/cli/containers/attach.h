// `tandem attach` and `tandem detach`: a GPU for a container while it runs.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace tandem::cli {

void AddAttach(CLI::App* app, std::function<int()>* action);

}  // namespace tandem::cli
