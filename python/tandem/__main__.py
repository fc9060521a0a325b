"""The commands of `tandem` that are written in Python: `python3 -m tandem COMMAND …`."""

import importlib
import sys
from typing import List, Optional

from .errors import Error
from .usage import Parser

_FOLDERS = ("jupyter", "notebook", "remote")


def _parser() -> Parser:
    parser = Parser(prog="tandem", description="Notebooks and jobs that share a GPU.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for folder in _FOLDERS:
        name = f"{__package__}.{folder}.commands"
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
            continue
        module.add_commands(commands)
    return parser


def main(arguments: Optional[List[str]] = None) -> int:
    """Runs one command; returns its exit status."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(options) or 0
    except Error as error:
        print(f"tandem: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of the output is gone
        sys.stderr.close()
        return 141


if __name__ == "__main__":
    sys.exit(main())
