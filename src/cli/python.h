// The commands of tandem that are written in Python: notebooks and jobs.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/cli/environment.h"
#include "src/cli/guard.h"

namespace tandem::cli {

// Declares them, for help and completion.
void AddPythonCommands(CLI::App* app);

// Whether the first of these arguments is one of them. Python then reads all others.
bool IsPythonCommand(const std::vector<std::string>& arguments);

// How Python is started for them. It is the python3 of PATH, and so that of an active virtual
// environment; TANDEM_PYTHON names another. `executable`: tandem itself, a path like
// <root>/bin/tandem. Errors: kNotFound where there is no python3, or Tandem's package is missing.
Result<Program> PythonCommand(const std::string& executable,
                              const std::vector<std::string>& arguments, Environment environment);

// Becomes that program; returns only where it cannot, with the exit status.
int RunPythonCommand(const std::vector<std::string>& arguments);

}  // namespace tandem::cli
