// `tandem cdi`, `tandem attach` and `tandem detach`: GPUs for containers.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace tandem::cli {

void AddContainers(CLI::App* app, std::function<int()>* action);

}  // namespace tandem::cli
