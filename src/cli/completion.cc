#include "src/cli/completion.h"

#include <fmt/core.h>

#include <set>

#include "src/usage/usage.h"

namespace tandem::cli {
namespace {

std::string Join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::vector<const CLI::App*> Commands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
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

std::vector<const CLI::Option*> Positionals(const CLI::App& command) {
  std::vector<const CLI::Option*> positionals;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_lnames().empty() && option->get_snames().empty()) positionals.push_back(option);
  }
  return positionals;
}

// What a shell may offer for a value of `option`: words, and a command that prints more of them.
struct Offer {
  std::string words;
  std::string command;
  bool empty() const { return words.empty() && command.empty(); }
};

Offer OfferFor(const CLI::App& app, const CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (type.find("SESSION|RUN") != std::string::npos) return {"", "tandem names sessions"};
  if (type == "GPU") return {"", "tandem names gpus"};
  if (type == "COMMAND") return {Join(Names(app)), ""};
  return {Join(usage::ValuesOf(option)), ""};
}

std::string BashOffer(const Offer& offer) {
  if (offer.command.empty()) return "'" + offer.words + "'";
  return "$(" + offer.command + " 2>/dev/null)";
}

// The values of options: cases of "COMMAND OPTION".
std::string BashValues(const CLI::App& app) {
  std::string cases;
  for (const CLI::App* command : Commands(app)) {
    for (const CLI::Option* option : command->get_options()) {
      const Offer offer = OfferFor(app, *option);
      if (offer.empty()) continue;
      for (const std::string& name : option->get_lnames()) {
        cases += fmt::format("    '{} --{}') values={} ;;\n", command->get_name(), name,
                             BashOffer(offer));
      }
    }
  }
  return cases;
}

// The words that are no options: cases of "COMMAND PLACE".
std::string BashPlaces(const CLI::App& app) {
  std::string cases;
  for (const CLI::App* command : Commands(app)) {
    size_t place = 0;
    for (const CLI::Option* option : Positionals(*command)) {
      const Offer offer = OfferFor(app, *option);
      if (!offer.empty()) {
        cases += fmt::format("    '{} {}') values={} ;;\n", command->get_name(), place,
                             BashOffer(offer));
      }
      ++place;
    }
  }
  return cases;
}

std::string Bash(const CLI::App& app) {
  std::string cases;
  for (const CLI::App* command : Commands(app)) {
    cases += fmt::format("    {}) words='{}' ;;\n", command->get_name(), Join(Options(*command)));
  }
  // After `run` and its options comes a command of its own, and then that command's arguments.
  return fmt::format(R"(_tandem() {{
  local words='{0}' values= command=${{COMP_WORDS[1]}} i place=0 program=0
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}}
  for ((i = 2; i < COMP_CWORD; i++)); do
    case ${{COMP_WORDS[i]}} in
      --) ((program == 0)) && program=$((i + 1)) ;;
      {1}) ((i++)) ;;
      -*) ;;
      *) ((place++)); ((program == 0)) && program=$i ;;
    esac
  done
  if [[ $command == run ]]; then
    if ((program > 0 && program < COMP_CWORD)); then
      COMPREPLY=($(compgen -f -- "$current"))
      return
    fi
    # Where the loop above stepped over a value, that is the current word.
    if ((program == COMP_CWORD)) || ((i == COMP_CWORD)) && [[ $current != -* ]]; then
      COMPREPLY=($(compgen -c -- "$current"))
      return
    fi
  fi
  if ((COMP_CWORD > 1 && i > COMP_CWORD)); then
    case "$command $previous" in
{2}    esac
    COMPREPLY=($(compgen -W "$values" -- "$current"))
    return
  fi
  ((COMP_CWORD > 1)) && case "$command $place" in
{3}  esac
  ((COMP_CWORD > 1)) && case $command in
{4}  esac
  COMPREPLY=($(compgen -W "$words $values" -- "$current"))
}}
complete -o default -F _tandem tandem
)",
                     Join(Names(app)), ValueOptions(app), BashValues(app), BashPlaces(app), cases);
}

// To be evaluated, or a file in $fpath. As a file it is the body of a function `_tandem`, which is
// called to complete a word, and then is the one that it defines.
std::string Zsh(const CLI::App& app) {
  return "#compdef tandem\nautoload -Uz bashcompinit && bashcompinit\n" + Bash(app) +
         "if [[ ${funcstack[1]} == _tandem ]]; then _bash_complete -o default -F _tandem; fi\n";
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

std::string FishOffer(const Offer& offer) {
  if (offer.empty()) return "";
  return " -a " + FishQuoted(offer.command.empty() ? offer.words : "(" + offer.command + ")");
}

std::string FishCommand(const CLI::App& app, const CLI::App& command) {
  const std::string& name = command.get_name();
  const std::string seen =
      fmt::format("complete -c tandem -n '__fish_seen_subcommand_from {}'", name);
  std::string text = fmt::format("complete -c tandem -n __fish_use_subcommand -f -a {} -d {}\n",
                                 name, FishQuoted(command.get_description()));
  for (const CLI::Option* option : command.get_options()) {
    const Offer offer = OfferFor(app, *option);
    const bool takes_value = option->get_items_expected_min() > 0;
    for (const std::string& each : option->get_lnames()) {
      text += fmt::format("{} -l {}{}{}\n", seen, each,
                          !takes_value    ? ""
                          : offer.empty() ? " -r"
                                          : " -x",
                          FishOffer(offer));
    }
  }
  for (const CLI::Option* option : Positionals(command)) {
    if (const Offer offer = OfferFor(app, *option); !offer.empty()) {
      text += seen + " -f" + FishOffer(offer) + "\n";
    }
  }
  if (name == "run") text += seen + " -x -a '(__fish_complete_subcommand)'\n";
  return text;
}

std::string Fish(const CLI::App& app) {
  std::string text;
  for (const CLI::App* command : Commands(app)) text += FishCommand(app, *command);
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
