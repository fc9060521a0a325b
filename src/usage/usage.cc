#include "src/usage/usage.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "src/base/bytes.h"
#include "src/base/duration.h"
#include "src/base/text.h"
#include "src/usage/nearest.h"

namespace tandem::usage {
namespace {

std::string Join(const std::vector<std::string>& words, const char* separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

template <typename T>
std::string MessageOf(const Result<T>& result) {
  return result.ok() ? "" : result.error().message;
}

// The variable that the mistaken value may come from, in brackets.
std::string NamedVariable(const CLI::App& command, const std::string& mistake) {
  std::string text;
  for (const CLI::Option* option : command.get_options()) {
    const std::string variable = option->get_envname();
    const char* const value = variable.empty() ? nullptr : std::getenv(variable.c_str());
    if (value == nullptr || mistake.find(option->get_name()) == std::string::npos) continue;
    text += " (" + variable + " is \"" + value + "\")";
  }
  return text;
}

}  // namespace

CLI::Validator IsSize() {
  return {[](std::string& text) { return MessageOf(ParseSize(text)); }, ""};
}

CLI::Validator IsLimit() {
  const auto check = [](std::string& text) -> std::string {
    const Result<Bytes> size = ParseSize(text);
    if (!size.ok() || *size > Bytes()) return MessageOf(size);
    return "a limit of 0 leaves the program no GPU memory; write for example 8G";
  };
  return {check, ""};
}

CLI::Validator IsTime() {
  return {[](std::string& text) { return MessageOf(ParseDuration(text)); }, ""};
}

CLI::Validator IsRunName() {
  const auto check = [](std::string& text) -> std::string {
    const bool number = text.find_first_not_of("0123456789") == std::string::npos;
    if (text.empty() || !number) return "";
    return "'" + text + "' would be taken for the number of a session; add a letter, as in run" +
           text;
  };
  return {check, ""};
}

CLI::Validator IsOneOf(std::vector<std::string> words,
                       std::function<bool(const std::string&)> also) {
  const std::string listed = Join(words, ", ");
  const std::string description = "{" + Join(words, ",") + "}";
  const auto check = [words = std::move(words), also = std::move(also),
                      listed](std::string& text) -> std::string {
    if (std::find(words.begin(), words.end(), text) != words.end()) return "";
    if (also && also(text)) return "";
    const std::optional<std::string> nearest = Nearest(text, words);
    return "'" + text + "' is none of " + listed +
           (nearest ? "; did you mean " + *nearest + "?" : "");
  };
  return {check, description};
}

std::vector<std::string> ValuesOf(const CLI::Option& option) {
  // CLI11 appends the description of the check to the type's name.
  const std::string type = option.get_type_name();
  const size_t begin = type.find('{'), end = type.rfind('}');
  if (begin == std::string::npos || end == std::string::npos || end <= begin) return {};
  return CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
}

bool TakesValue(const CLI::Option& option) {
  return option.get_items_expected_min() > 0;
}

std::optional<std::string> UnknownOption(const CLI::App& command, const std::string& name,
                                         const std::vector<std::string>& arguments) {
  for (auto argument = arguments.begin(); argument != arguments.end(); ++argument) {
    if (*argument == "--") break;
    if (argument->size() < 2 || argument->front() != '-') continue;
    const size_t equals = argument->find('=');
    const std::string typed = argument->substr(0, equals);
    if (const CLI::Option* option = command.get_option_no_throw(typed)) {
      const bool skips = TakesValue(*option) && equals == std::string::npos;
      if (skips && argument + 1 != arguments.end()) ++argument;
      continue;
    }
    std::vector<std::string> options;
    for (const CLI::Option* option : command.get_options()) {
      for (const std::string& known : option->get_lnames()) options.push_back("--" + known);
    }
    const std::optional<std::string> nearest = Nearest(typed, options);
    std::string text = name;
    text.append(" has no option ").append(typed).append("; ");
    if (nearest) return text.append("did you mean ").append(*nearest).append("?");
    return text.append("`").append(name).append(" --help` lists those it has");
  }
  return std::nullopt;
}

int Explain(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error);  // prints help or version
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  const CLI::App& command = chosen.empty() ? app : *chosen.back();
  const std::string name = app.get_name() + (chosen.empty() ? "" : " " + command.get_name());
  const std::string text = app.get_name() + ": " + error.what() +
                           NamedVariable(command, error.what()) + "; `" + name +
                           " --help` says more";
  std::fprintf(stderr, "%s\n", EscapeText(text).c_str());
  return kExitUsage;
}

}  // namespace tandem::usage
