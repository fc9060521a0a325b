#include "src/cli/completion.h"

#include <fmt/core.h>

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

std::string Bash(const CLI::App& app) {
  std::string cases;
  for (const CLI::App* command : Commands(app)) {
    cases += fmt::format("    {}) words='{}' ;;\n", command->get_name(), Join(Options(*command)));
  }
  // After `run` and its options comes a command of its own: bash completes it as any other.
  return fmt::format(R"(_tandem() {{
  local words='{}' i
  if [[ ${{COMP_WORDS[1]}} == run ]]; then
    for ((i = 2; i < COMP_CWORD; i++)); do
      case ${{COMP_WORDS[i]}} in
        --memory | --name | --gpu) ((i++)) ;;
        --) COMPREPLY=($(compgen -c -- "${{COMP_WORDS[COMP_CWORD]}}")); return ;;
        -*) ;;
        *) COMPREPLY=($(compgen -f -- "${{COMP_WORDS[COMP_CWORD]}}")); return ;;
      esac
    done
  fi
  ((COMP_CWORD > 1)) && case ${{COMP_WORDS[1]}} in
{}  esac
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _tandem tandem
)",
                     Join(Names(app)), cases);
}

std::string Zsh(const CLI::App& app) {
  return "autoload -Uz bashcompinit && bashcompinit\n" + Bash(app);
}

std::string Fish(const CLI::App& app) {
  std::string text;
  for (const CLI::App* command : Commands(app)) {
    text += fmt::format("complete -c tandem -n __fish_use_subcommand -f -a {} -d '{}'\n",
                        command->get_name(), command->get_description());
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
