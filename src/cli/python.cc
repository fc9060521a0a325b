#include "src/cli/python.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "src/cli/print.h"
#include "src/cli/program.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

struct PythonCommandName {
  const char* name;
  const char* help;
};
constexpr PythonCommandName kCommands[] = {
    {"jupyter", "Install the notebook kernel that shares the GPU, or set up JupyterHub"},
    {"notebook", "Run a whole notebook, now or in the background"},
    {"jobs", "List notebooks that run in the background"},
    {"logs", "Show what a job has printed"},
    {"cancel", "Cancel a job"},
    {"wait", "Wait for jobs to end"},
};

// Below <root>/lib, where `./dev install` and the build put the package.
constexpr const char* kEntry = "lib/tandem/python/tandem-command.py";

}  // namespace

void AddPythonCommands(CLI::App* app) {
  for (const PythonCommandName& command : kCommands) {
    CLI::App* const added = app->add_subcommand(command.name, command.help);
    added->footer(std::string("`tandem ") + command.name + " --help` lists the options.");
  }
}

bool IsPythonCommand(const std::vector<std::string>& arguments) {
  return !arguments.empty() && std::any_of(std::begin(kCommands), std::end(kCommands),
                                           [&](const PythonCommandName& command) {
                                             return command.name == arguments[0];
                                           });
}

Result<Program> PythonCommand(const std::string& executable,
                              const std::vector<std::string>& arguments, Environment environment) {
  const fs::path entry = fs::path(executable).parent_path().parent_path() / kEntry;
  std::error_code ignored;
  if (!fs::exists(entry, ignored)) {
    return Error{ErrorCode::kNotFound, entry.string() +
                                           " is missing: this installation of Tandem is not "
                                           "complete"};
  }
  const std::string name = Lookup(environment, "TANDEM_PYTHON").value_or("python3");
  const std::string path = Lookup(environment, "PATH").value_or("/usr/bin:/bin");
  Result<std::string> python = FindProgram(name, path);
  if (!python.ok()) {
    return Error{ErrorCode::kNotFound,
                 python.error().message + "; `tandem " + arguments[0] +
                     "` is written in Python: install python3, or set TANDEM_PYTHON to its path"};
  }
  std::vector<std::string> words = {name, entry};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::erase_if(environment,
                [](const std::string& entry) { return entry.starts_with("TANDEM_COMMAND="); });
  environment.push_back("TANDEM_COMMAND=" + executable);
  return Program{*python, std::move(words), std::move(environment)};
}

int RunPythonCommand(const std::vector<std::string>& arguments) {
  std::error_code error;
  const fs::path executable = fs::read_symlink("/proc/self/exe", error);
  if (error) return Fail(1, "cannot read /proc/self/exe: " + error.message());
  const Result<Program> program = PythonCommand(executable, arguments, OwnEnvironment());
  return Fail(1, program.ok() ? Become(*program).message : program.error().message);
}

}  // namespace tandem::cli
