"""A command line whose mistakes are told as those of the other commands of `tandem`."""

import argparse
import difflib
import sys


def nearest(typed, words):
    """Returns "; did you mean X?" for the word that was probably meant, or ""."""
    found = difflib.get_close_matches(typed, words, 1)
    return f"; did you mean {found[0]}?" if found else ""


class Parser(argparse.ArgumentParser):
    """Names a mistake in one line, suggests the word that was meant, and exits with status 2."""

    unknown_hint = ""  # follows an unknown option that is like no other

    def __init__(self, **options):
        super().__init__(**{"allow_abbrev": False, **options})

    def parse_known_args(self, args=None, namespace=None):
        """Parses; a mistyped option is told before anything else."""
        args = sys.argv[1:] if args is None else list(args)
        unknown = self._unknown_option(args)
        if unknown is not None:
            known = [name for name in self._option_string_actions if name.startswith("--")]
            hint = nearest(unknown, known) or self.unknown_hint or self._see_help("lists those it has")
            self.fail(f"{self.prog} has no option {unknown}{hint}")
        return super().parse_known_args(args, namespace)

    def _unknown_option(self, words):
        """Returns the first option that this parser lacks, or None; words of subcommands aside."""
        words = iter(words)
        for word in words:
            if word == "--" or (self._subparsers is not None and not word.startswith("-")):
                return None
            if len(word) < 2 or not word.startswith("-"):
                continue
            name, has_value, _ = word.partition("=")
            action = self._option_string_actions.get(name)
            if action is None and not (word[1] != "-" and word[:2] in self._option_string_actions):
                return name
            if action is not None and action.nargs is None and not has_value:
                next(words, None)
        return None

    def _check_value(self, action, value):
        if action.choices is None or value in action.choices:
            return
        meant = nearest(str(value), list(action.choices))
        if isinstance(action, argparse._SubParsersAction):
            hint = meant or self._see_help("lists those it has")
            self.fail(f'{self.prog} has no command "{value}"{hint}')
        listed = ", ".join(action.choices)
        raise argparse.ArgumentError(action, f"{value!r} is none of {listed}{meant}")

    def _see_help(self, what):
        return f"; `{self.prog} --help` {what}"

    def error(self, message):
        """Tells a mistake, and where the help is."""
        self.fail(message + self._see_help("says more"))

    def fail(self, message):
        """Ends the program with a line about the mistake."""
        self.exit(2, f"tandem: {message}\n")
