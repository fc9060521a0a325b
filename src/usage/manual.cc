#include "src/usage/manual.h"

#include <algorithm>
#include <cctype>

#include "src/usage/usage.h"

namespace tandem::usage {
namespace {

// As text of a page: no character of it is an instruction.
std::string Roff(const std::string& text) {
  std::string roff;
  for (const char c : text) {
    const bool first = roff.empty() || roff.back() == '\n';
    if (first && (c == '.' || c == '\'')) roff += "\\&";
    if (c == '\\') {
      roff += "\\e";
    } else if (c == '-') {
      roff += "\\-";
    } else {
      roff += c;
    }
  }
  return roff;
}

std::string Bold(const std::string& text) {
  return "\\fB" + Roff(text) + "\\fR";
}

std::string Italic(const std::string& text) {
  return "\\fI" + Roff(text) + "\\fR";
}

// The type without the values that a check has appended.
std::string TypeOf(const CLI::Option& option) {
  // CLI11 appends ":" and what the check says, such as "{a,b}" or "INT in [1 - 64]".
  const std::string type = option.get_type_name();
  const size_t range = type.find(" in [");
  return type.substr(0, range != std::string::npos ? type.rfind(':', range) : type.find(":{"));
}

bool IsPositional(const CLI::Option& option) {
  return option.get_lnames().empty() && option.get_snames().empty();
}

std::string NamesOf(const CLI::Option& option) {
  std::string names;
  const auto add = [&](const std::string& name) {
    names += (names.empty() ? "" : ", ") + Bold(name);
  };
  for (const std::string& name : option.get_snames()) add("-" + name);
  for (const std::string& name : option.get_lnames()) add("--" + name);
  if (IsPositional(option)) return Italic(TypeOf(option));
  return TakesValue(option) ? names + " " + Italic(TypeOf(option)) : names;
}

std::string OptionText(const CLI::Option& option) {
  std::string text = ".TP\n" + NamesOf(option) + "\n" + Roff(option.get_description());
  std::string values;
  for (const std::string& value : ValuesOf(option)) values += (values.empty() ? "" : ", ") + value;
  if (!values.empty()) text += "\n.br\nValues: " + Roff(values) + ".";
  if (!option.get_default_str().empty()) {
    text += "\n.br\nDefault: " + Roff(option.get_default_str()) + ".";
  }
  if (!option.get_envname().empty()) text += "\n.br\nVariable: " + Bold(option.get_envname()) + ".";
  return text + "\n";
}

std::string OptionsText(const CLI::App& app) {
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_group().empty()) text += OptionText(*option);
  }
  return text;
}

std::string Synopsis(const CLI::App& app, const std::string& name) {
  std::string text = ".B " + Roff(name) + "\n";
  bool options = false;
  std::string words;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    if (!IsPositional(*option)) {
      options = true;
      continue;
    }
    const std::string word = Italic(TypeOf(*option));
    words += option->get_required() ? " " + word : " [" + word + "]";
  }
  return text + (options ? "[options]" : "") + words + "\n";
}

// A footer is set in lines; so it stays.
std::string FooterText(const CLI::App& app) {
  const std::string footer = app.get_footer();
  return footer.empty() ? "" : ".PP\n.nf\n" + Roff(footer) + "\n.fi\n";
}

std::string CommandText(const std::string& program, const CLI::App& command) {
  const std::string name = program + " " + command.get_name();
  return ".SS " + Roff(command.get_name()) + "\n" + Synopsis(command, name) + ".PP\n" +
         Roff(command.get_description()) + ".\n" + OptionsText(command) + FooterText(command);
}

std::string Upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

}  // namespace

std::string ManualPage(const CLI::App& app, int section, const std::string& version) {
  const std::string& name = app.get_name();
  const std::string about = app.get_description();
  const std::string first = about.substr(0, about.find('\n'));
  std::string text = ".TH " + Upper(name) + " " + std::to_string(section) + " \"\" \"tandem " +
                     version + "\"\n.SH NAME\n" + Roff(name) + " \\- " + Roff(first) +
                     "\n.SH SYNOPSIS\n";
  const auto commands =
      app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
  text += commands.empty() ? Synopsis(app, name)
                           : ".B " + Roff(name) + "\n" + Italic("COMMAND") + " [options]\n";
  text += ".SH DESCRIPTION\n" + Roff(about) + "\n.SH OPTIONS\n" + OptionsText(app);
  if (!commands.empty()) text += ".SH COMMANDS\n";
  for (const CLI::App* command : commands) text += CommandText(name, *command);
  return text + ".SH EXAMPLES AND NOTES\n" + FooterText(app);
}

}  // namespace tandem::usage
