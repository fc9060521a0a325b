// `tandem serve`: the program lib/tandem/tandem-serve, which alone is linked to a library for HTTP.
//
// Both programs declare the same options: tandem for its help and completion, the other to parse
// them.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/cli/guard.h"

namespace tandem::cli {

struct ServeOptions {
  std::string listen = "127.0.0.1:9870";
  std::string token_file;  // empty: none
  bool privacy = false;
  bool json = false;
  std::optional<std::string> gpu;
};

void AddServeOptions(CLI::App* command, ServeOptions* options);

// The program of `executable`, a path like <root>/bin/tandem, with these options. kNotFound where
// it is missing.
Result<Program> ServeProgram(const std::string& executable, const ServeOptions& options,
                             Environment environment);

void AddServe(CLI::App* app, std::function<int()>* action);

}  // namespace tandem::cli
