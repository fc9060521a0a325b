"""`%%gpu` and `%gpu`.

A cell under `%%gpu` runs as any other: IPython compiles and runs it, shows its last value and its
tracebacks, and awaits what it awaits. Its first line becomes a string, which marks the cell. Before
the cell runs, the string is taken out of the syntax tree, and the lease is taken. It ends when IPython
says that the cell has ended.
"""

import ast
import asyncio
import contextlib
import signal
import threading
import time
import warnings
from dataclasses import dataclass
from typing import List, Optional

from IPython.core.error import InputRejected, UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class

from .. import _abi
from ..errors import TimeLimitExceeded
from ..lease import Block
from ..remote import absent_gpu
from ..slurm import is_place
from ..status import release, status
from ..units import format_time, parse_time
from .display import CellDisplay, shared_kernel_hint
from .options import block_of, cell_parser, line_parser, parse
from .waits import MiddleWaits

_MAGIC = "%%gpu"
_HERE_ONLY = (
    ("--wait", "wait"), ("--duration", "duration"), ("--mem", "mem"), ("--class", "work_class"),
    ("--device", "device"),
)  # fmt: skip


def place_of(where: str) -> str:
    """Returns the worker that a word after `--where` or `%gpu use` means; "local" for this kernel."""
    if where in ("local", "worker"):
        return {"local": "local", "worker": "local-worker"}[where]
    return where if "://" in where or is_place(where) else f"ssh://{where}"


def _is_magic(line: str) -> bool:
    return line == _MAGIC or line.startswith(_MAGIC + " ")


def _rejected(error: BaseException) -> InputRejected:
    """The error as IPython wants one that keeps a cell from running. It goes by its own name."""
    name, text = type(error).__name__, str(error) or "the cell did not run"
    bases = (type(error), InputRejected) if isinstance(error, Exception) else (InputRejected,)
    # No line of the cell is to blame: there is no traceback to show.
    shown = {"_render_traceback_": lambda _: [f"{name}: {text}"], "__module__": "tandem"}
    return type(name, bases, shown)(text)


@dataclass(frozen=True)
class Ran:
    """One cell, for `%gpu log`."""

    at: float
    waited_s: float
    ran_s: float


class CellLease(ast.NodeTransformer):
    """Takes the lease of a marked cell before it runs, and ends it afterwards."""

    def __init__(self, shell):
        self._shell = shell
        self.where = "local"  # where cells run that do not say
        self._block: Optional[Block] = None
        self._display: Optional[CellDisplay] = None
        self._before = None  # the shell's handler of exceptions
        self._limit_error: Optional[BaseException] = None
        self.log: List[Ran] = []
        self._waits = MiddleWaits()
        self._plain: Optional[CellDisplay] = None  # of a cell that has no lease
        self._plain_began = 0.0

    def begin_plain(self, *_):
        """For IPython: a cell begins. It may use the card without a lease of its own."""
        self._plain, self._plain_began = CellDisplay(self._shell), time.monotonic()
        self._waits.begin(self._plain)

    def _end_plain(self):
        waited_s, display, self._plain = self._waits.end(), self._plain, None
        if display is not None and waited_s:
            display.on_end(waited_s, time.monotonic() - self._plain_began - waited_s)

    def mark(self, lines: List[str]) -> List[str]:
        """An input transformer: turns a first line `%%gpu …` into a string, which marks the cell.

        A cell that runs elsewhere stays a cell magic, which has the cell's text.
        """
        first = lines[0].strip() if lines else ""
        if not _is_magic(first) or not self._runs_here(first[len(_MAGIC) :]):
            return lines
        rest = lines[1:]
        if rest and rest[0].startswith("%%"):  # one more cell magic, which wants to be first
            text = self._shell.input_transformer_manager.transform_cell("".join(rest))
            rest = text.splitlines(keepends=True)
        return [f"{first!r}\n", *rest]

    # A terminal asks with the untouched text whether the cell is complete: a blank line ends it.
    mark.has_side_effects = True  # type: ignore[attr-defined]

    def _runs_here(self, line: str) -> bool:
        try:
            where = parse(cell_parser(), line).where
        except UsageError:
            return True  # where the mistake is told
        return (self.where if where is None else place_of(where)) == "local"

    def visit(self, node):
        """For IPython: `node` is the module of a cell. Raises InputRejected."""
        options = self._cut(node)
        if options is None:
            return node
        try:
            if not self._begin(options):
                node.body.clear()
        except (Exception, KeyboardInterrupt) as error:
            raise _rejected(error) from None
        return node

    @staticmethod
    def _cut(node) -> Optional[str]:
        first = node.body[0] if isinstance(node, ast.Module) and node.body else None
        mark = first.value if isinstance(first, ast.Expr) else None
        text = mark.value if isinstance(mark, ast.Constant) else None
        if not isinstance(text, str) or not _is_magic(text):
            return None
        del node.body[0]
        return text[len(_MAGIC) :]

    def _begin(self, line: str) -> bool:
        parser = cell_parser()
        options = parse(parser, line)
        if options.help:
            parser.print_help()
            return False
        self._end_plain()
        self._display = CellDisplay(self._shell, options.quiet)
        block = block_of(options, self._display.on_wait)
        try:
            with warnings.catch_warnings():
                if _abi.api() is None:  # as `%load_ext tandem` has said
                    warnings.simplefilter("ignore")
                with _interruptible():
                    block.begin()
        except BaseException:
            self._display.on_refused()
            raise
        self._display.on_granted()
        self._block = block
        self._waits.begin(self._display, lease=True)
        if block.limit_s is not None:
            self._before = self._shell.custom_exceptions, self._shell.CustomTB
            self._shell.set_custom_exc((asyncio.CancelledError,), self._on_cancelled)
            names = self._shell.user_ns
            block.start_limit(lambda frame: frame.f_globals is names)
        return True

    def _on_cancelled(self, shell, _kind, error, trace, tb_offset=None):
        """Shows TimeLimitExceeded where the limit has cancelled a cell that awaits."""
        limit = self._block and self._block.limit_error(error)
        if limit:
            self._limit_error = error = limit.with_traceback(trace)
        shell.showtraceback((type(error), error, trace), tb_offset=tb_offset)

    def end(self, *_):
        """For IPython: a cell has ended."""
        block, self._block = self._block, None
        if block is None:
            return self._end_plain()
        waited_s = self._waits.end()  # in the middle of the cell
        if self._before is not None:
            self._shell.custom_exceptions, self._shell.CustomTB = self._before
            self._before = None
        error = self._limit_error
        if error is None and self._shell.last_execution_result is not None:
            error = self._shell.last_execution_result.error_in_exec
        try:
            block.__exit__(None, error, None)
        except TimeLimitExceeded as late:  # the cell has caught it
            self._limit_error = late
            self._shell.showtraceback((type(late), late, late.__traceback__))
        ran = Ran(time.time(), block.waited_s + waited_s, max(0.0, block.ran_s - waited_s))
        self.log.append(ran)
        self._display.on_end(ran.waited_s, ran.ran_s)

    def on_result(self, result=None):
        """For IPython: the result of a cell, which the kernel's answer is made of."""
        error, self._limit_error = self._limit_error, None
        if error is not None and result is not None:
            result.error_in_exec = error


@contextlib.contextmanager
def _interruptible():
    """An interrupt raises KeyboardInterrupt, also where a kernel would cancel a cell that awaits."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _remote():
    try:
        from .. import remote
    except ImportError as error:
        raise UsageError(f"cells that run elsewhere need {error.name}: install it") from None
    return remote


@magics_class
class GpuMagics(Magics):
    """The magic `%gpu`, and the help of `%%gpu`."""

    def __init__(self, shell, cells: CellLease):
        super().__init__(shell)
        self._cells = cells

    @line_cell_magic
    def gpu(self, line, cell=None):
        if cell is not None:
            return self._run_elsewhere(line, cell)
        parser = line_parser()
        options = parse(parser, line)
        if options.help:
            parser.print_help()
        elif options.command == "log":
            self._log()
        elif options.command in ("use", "fetch"):
            self._with_name(options.command, options.name)
        elif options.command == "release":
            print("The memory leaves the card." if release() else "There is nothing to release.")
        else:
            print(status())

    gpu.__doc__ = cell_parser().format_help() + "\n" + line_parser().format_help()

    def _with_name(self, command, name):
        if name is None:
            raise UsageError(f"%gpu {command} needs a name; `%gpu --help` has examples")
        if command == "fetch":
            return _remote().fetch(self.shell, name)
        self._cells.where = place_of(name)
        here = self._cells.where == "local"
        if here:
            absent_gpu.uninstall()
        else:
            absent_gpu.expect(f"the GPU of {name}, for cells under %%gpu")
        print("Cells run in this kernel." if here else f"Cells under %%gpu run on {name}.")

    def _run_elsewhere(self, line, cell):
        parser = cell_parser()
        options = parse(parser, line)
        if options.help:
            return parser.print_help()
        where = place_of(options.where) if options.where else self._cells.where
        if where == "local":
            raise UsageError("%%gpu has to be the first line of its cell")
        for option, given in _HERE_ONLY:
            if getattr(options, given) not in (None, 0):
                raise UsageError(f"%%gpu {option} has no effect on a cell that runs elsewhere: omit it")
        options.timeout = parse_time(options.limit)
        options.limit = None  # there: of the bytes that travel
        return _remote().run_cell(self.shell, cell, where, options).raise_error()

    def _log(self):
        if not self._cells.log:
            print("No cell has run under %%gpu yet.")
        for ran in self._cells.log:
            at = time.strftime("%H:%M:%S", time.localtime(ran.at))
            print(f"{at}  waited {format_time(ran.waited_s)}, ran {format_time(ran.ran_s)}")


def load(shell) -> None:
    """Registers the magics with an IPython shell, once."""
    if any(isinstance(known, CellLease) for known in shell.ast_transformers):
        return
    cells = CellLease(shell)
    shell.input_transformers_cleanup.append(cells.mark)
    shell.ast_transformers.append(cells)
    shell.events.register("pre_run_cell", cells.begin_plain)
    shell.events.register("post_execute", cells.end)
    shell.events.register("post_run_cell", cells.on_result)
    shell.register_magics(GpuMagics(shell, cells))
    hint = shared_kernel_hint(shell)
    if hint is not None:
        print(hint)
