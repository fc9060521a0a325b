#include "src/cli/completion.h"

#include <fmt/core.h>

#include <set>

namespace tandem::cli {
namespace {

std::string Join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::vector<const CLI::App*> Commands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<std::string> Names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : Commands(app)) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> Options(const CLI::App& command) {
  std::vector<std::string> options;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
  }
  return options;
}

// Those after which the next word is their value, as a pattern of `case`.
std::string ValueOptions(const CLI::App& app) {
  std::set<std::string> names;
  for (const CLI::App* command : Commands(app)) {
    for (const CLI::Option* option : command->get_options()) {
      if (option->get_items_expected_min() == 0) continue;
      for (const std::string& name : option->get_lnames()) names.insert(" | --" + name);
    }
  }
  std::string pattern = "''";  // a pattern, too, where there are none
  for (const std::string& name : names) pattern += name;
  return pattern;
}

std::string Bash(const CLI::App& app) {
  std::string cases;
  for (const CLI::App* command : Commands(app)) {
    cases += fmt::format("    {}) words='{}' ;;\n", command->get_name(), Join(Options(*command)));
  }
  // After `run` and its options comes a command of its own, and then that command's arguments.
  return fmt::format(R"(_tandem() {{
  local words='{}' current=${{COMP_WORDS[COMP_CWORD]}} i program=0
  if [[ ${{COMP_WORDS[1]}} == run ]]; then
    for ((i = 2; i < COMP_CWORD; i++)); do
      case ${{COMP_WORDS[i]}} in
        --) program=$((i + 1)); break ;;
        {}) ((i++)) ;;
        -*) ;;
        *) program=$i; break ;;
      esac
    done
  fi
  if ((program > 0)); then
    if ((program == COMP_CWORD)); then i=-c; else i=-f; fi
    COMPREPLY=($(compgen $i -- "$current"))
    return
  fi
  ((COMP_CWORD > 1)) && case ${{COMP_WORDS[1]}} in
{}  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _tandem tandem
)",
                     Join(Names(app)), ValueOptions(app), cases);
}

std::string Zsh(const CLI::App& app) {
  return "autoload -Uz bashcompinit && bashcompinit\n" + Bash(app);
}

// In single quotes fish takes all but these two as they are.
std::string FishQuoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "'";
}

std::string Fish(const CLI::App& app) {
  std::string text;
  for (const CLI::App* command : Commands(app)) {
    text += fmt::format("complete -c tandem -n __fish_use_subcommand -f -a {} -d {}\n",
                        command->get_name(), FishQuoted(command->get_description()));
    for (const std::string& option : Options(*command)) {
      text += fmt::format("complete -c tandem -n '__fish_seen_subcommand_from {}' -l {}\n",
                          command->get_name(), option.substr(2));
    }
  }
  return text;
}

}  // namespace

std::vector<std::string> CompletionShells() {
  return {"bash", "zsh", "fish"};
}

std::string CompletionScript(const std::string& shell, const CLI::App& app) {
  if (shell == "zsh") return Zsh(app);
  return shell == "fish" ? Fish(app) : Bash(app);
}

}  // namespace tandem::cli
