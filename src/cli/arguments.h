// The words of tandem's command line before CLI11 parses them.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tandem::cli {

// The subcommands of `app`.
std::vector<const CLI::App*> CommandsOf(const CLI::App& app);

// Cuts the program and its arguments off the arguments of `run` and leaves one word for them: they
// are the program's to the last character, even where they look like options or lists to CLI11.
std::vector<std::string> CutProgram(const CLI::App& run, std::vector<std::string>* arguments);

// A command or an option that is not declared, with a suggestion. CLI11 alone would say that a
// command is missing, or that a word was not expected.
std::optional<std::string> MistypedWord(const CLI::App& app,
                                        const std::vector<std::string>& arguments);

// What `tandem help [COMMAND]` prints.
std::string HelpOf(const CLI::App& app, const std::string& command);

}  // namespace tandem::cli
