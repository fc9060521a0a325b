"""The words after `%%gpu` and `%gpu`."""

import argparse
import functools
import shlex

from IPython.core.error import UsageError

from ..errors import InvalidUse
from ..lease import CLASSES, Block
from ..units import parse_size, parse_time
from ..usage import Parser

CELL_EXAMPLES = """
examples:
  %%gpu                    hold the GPU for this cell
  %%gpu -w 10m             wait for at most ten minutes
  %%gpu -t 30s --mem 8G    run for at most 30 s, and begin when 8 GiB can be there
  %%gpu --where gpuhost    run the cell on that machine (ssh), with this notebook's variables
  %%gpu --where gpuhost --dry-run -i data    what would travel there, beside `data`
"""
LINE_EXAMPLES = """
examples:
  %gpu status    how this notebook stands, and who else is there
  %gpu log       what the cells of this notebook waited and ran
  %gpu release   let this notebook's memory leave the card until the next cell
  %gpu use HOST  run cells there from now on; `%gpu use local` runs them here again
  %gpu fetch X   bring the value of a variable that has stayed on the other machine
"""


class _Parser(Parser):
    """Raises UsageError, where a command would end the program."""

    def fail(self, message):
        raise UsageError(message)


def _names(text):
    return [name for name in text.replace(",", " ").split() if name]


def _checked(parse):
    def check(text):
        try:
            parse(text)
        except InvalidUse as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text

    return check


@functools.lru_cache(maxsize=None)
def cell_parser() -> argparse.ArgumentParser:
    """Returns the parser of `%%gpu`."""
    parser = _Parser(
        prog="%%gpu",
        description="Hold the GPU for this cell.",
        epilog=CELL_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    size, length = _checked(parse_size), _checked(parse_time)
    parser.add_argument("-w", "--wait", type=length, metavar="TIME", help="the longest wait")
    parser.add_argument("-t", "--limit", type=length, metavar="TIME", help="the longest run")
    parser.add_argument(
        "-e", "--duration", type=length, metavar="TIME",
        help="about how long the cell needs the GPU; short cells go first",
    )  # fmt: skip
    parser.add_argument(
        "--mem", type=size, metavar="SIZE", help="begin when the cell can have this memory"
    )
    parser.add_argument(
        "--class", dest="work_class", choices=CLASSES, metavar="CLASS", help=", ".join(CLASSES)
    )
    parser.add_argument("--device", type=int, default=0, metavar="N", help="number of the GPU")
    remote = parser.add_argument_group("cells that run elsewhere")
    remote.add_argument(
        "--where", metavar="HOST",
        help="run the cell there: local (default), worker (another process here), a host, ssh://host",
    )  # fmt: skip
    remote.add_argument("-i", "--inputs", type=_names, default=(), metavar="NAMES",
                        help="variables that travel beside those that the cell reads")  # fmt: skip
    remote.add_argument("-o", "--outputs", type=_names, metavar="NAMES",
                        help="the only variables that come back")  # fmt: skip
    remote.add_argument("--keep", type=_names, default=(), metavar="NAMES",
                        help="variables that stay there")  # fmt: skip
    remote.add_argument("--large", action="store_true", help="let more than 1 GiB travel")
    remote.add_argument("--dry-run", action="store_true", help="show what would travel, run nothing")
    parser.add_argument("-q", "--quiet", action="store_true", help="show no line about the wait")
    parser.add_argument("-h", "--help", action="store_true", help="show this text")
    return parser


@functools.lru_cache(maxsize=None)
def line_parser() -> argparse.ArgumentParser:
    """Returns the parser of `%gpu`."""
    parser = _Parser(
        prog="%gpu",
        description="Show or release this notebook's GPU.",
        epilog=LINE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    commands = ("status", "log", "release", "use", "fetch")
    parser.add_argument("command", nargs="?", default="status", choices=commands)
    parser.add_argument("name", nargs="?", metavar="HOST|NAME")
    parser.add_argument("-h", "--help", action="store_true", help="show this text")
    return parser


def parse(parser: argparse.ArgumentParser, line: str) -> argparse.Namespace:
    """Returns the options in `line`. Raises UsageError."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{parser.prog}: {error}") from None
    return parser.parse_args(words)


def block_of(options: argparse.Namespace, on_wait) -> Block:
    """Returns the block that the options of `%%gpu` ask for. Raises InvalidUse."""
    return Block(
        device=options.device,
        wait=options.wait,
        memory=options.mem,
        duration=options.duration,
        limit=options.limit,
        work_class=options.work_class,
        on_wait=on_wait,
    )
