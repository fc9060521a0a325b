// Usage: what the command lines of tandem and tandemd have in common. Both report a mistake in one
// line with exit status 2, suggest the option that was probably meant, and take sizes and times
// in the same form.
//
// Threading: none.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tandem::usage {

inline constexpr int kExitUsage = 2;

// Checks for the values of options. The message of each has an example.
CLI::Validator IsSize();     // "8G", "0"; a number without a unit is refused
CLI::Validator IsLimit();    // the same without "0"
CLI::Validator IsTime();     // "500ms", "5m"
CLI::Validator IsRunName();  // "mnist"; a number would be taken for a session's
// One of `words`, which `--help` and completion list. `also` accepts words that are not listed.
CLI::Validator IsOneOf(std::vector<std::string> words,
                       std::function<bool(const std::string&)> also = nullptr);

// The words that a value of `option` is one of; empty where it has no IsOneOf.
std::vector<std::string> ValuesOf(const CLI::Option& option);

// Whether the word after the option is its value.
bool TakesValue(const CLI::Option& option);

// The mistake in `arguments`, if one of them is an option that `command` does not have.
std::optional<std::string> UnknownOption(const CLI::App& command, const std::string& name,
                                         const std::vector<std::string>& arguments);

// Ends a parse of the program `name`: prints the help or the version that was asked for and
// returns 0, or explains the mistake in one line on standard error and returns kExitUsage.
int Explain(const CLI::App& app, const CLI::ParseError& error);

}  // namespace tandem::usage
