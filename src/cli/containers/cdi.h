// `tandem cdi`: GPUs as devices of containers.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace tandem::cli {

void AddCdi(CLI::App* app, std::function<int()>* action);

}  // namespace tandem::cli
