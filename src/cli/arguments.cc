#include "src/cli/arguments.h"

#include <fmt/core.h>

#include "src/usage/nearest.h"
#include "src/usage/usage.h"

namespace tandem::cli {
namespace {

const CLI::App* Find(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : CommandsOf(app)) {
    if (command->get_name() == name) return command;
  }
  return nullptr;
}

std::string UnknownCommand(const CLI::App& app, const std::string& typed) {
  std::vector<std::string> names;
  for (const CLI::App* command : CommandsOf(app)) {
    if (!command->get_group().empty()) names.push_back(command->get_name());
  }
  const std::optional<std::string> nearest = usage::Nearest(typed, names);
  return fmt::format(
      "tandem has no command \"{}\"; {}", typed,
      nearest ? fmt::format("did you mean \"{}\"?", *nearest) : "`tandem help` lists those it has");
}

}  // namespace

std::vector<const CLI::App*> CommandsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<std::string> CutProgram(const CLI::App& run, std::vector<std::string>* arguments) {
  if (arguments->empty() || arguments->front() != "run") return {};
  auto program = arguments->begin() + 1;
  for (; program != arguments->end() && *program != "--"; ++program) {
    if (program->empty() || program->front() != '-') break;
    const CLI::Option* option = run.get_option_no_throw(*program);
    const bool value_follows = option != nullptr && usage::TakesValue(*option);
    if (value_follows && program + 1 != arguments->end()) ++program;
  }
  const auto begin = program != arguments->end() && *program == "--" ? program + 1 : program;
  std::vector<std::string> command(begin, arguments->end());
  arguments->erase(program, arguments->end());
  if (!command.empty()) arguments->push_back("program");
  return command;
}

std::optional<std::string> MistypedWord(const CLI::App& app,
                                        const std::vector<std::string>& arguments) {
  if (arguments.empty()) return std::nullopt;
  if (arguments[0].starts_with('-')) return usage::UnknownOption(app, "tandem", {arguments[0]});
  const CLI::App* command = Find(app, arguments[0]);
  if (command == nullptr) return UnknownCommand(app, arguments[0]);
  if (arguments[0] == "help" && arguments.size() > 1 && Find(app, arguments[1]) == nullptr) {
    return UnknownCommand(app, arguments[1]);
  }
  return usage::UnknownOption(*command, "tandem " + arguments[0],
                              {arguments.begin() + 1, arguments.end()});
}

std::string HelpOf(const CLI::App& app, const std::string& command) {
  const CLI::App* found = Find(app, command);
  const std::string name = app.get_name() + (found != nullptr ? " " + command : "");
  // Not App::help(), which would explain the command that was parsed.
  return app.get_formatter()->make_help(found != nullptr ? found : &app, name,
                                        CLI::AppFormatMode::Normal);
}

}  // namespace tandem::cli
