"""Runs one cell on a worker: what goes, what comes back, what is shown."""

import re
import time
from dataclasses import dataclass, field, fields
from typing import Any, Optional, Sequence

from ..errors import Error, TimeLimitExceeded
from . import names as cell_text
from .errors import CannotTravel, RemoteCellError, TooLarge, WorkerLost, over_limit
from .outputs import Outputs
from .session import error_of, say, session, uninterrupted

DEFAULT_LIMIT = 1 << 30
_ASSUMED_RATE = 1e9  # bytes/s, for the estimate of a dry run


@dataclass
class CellOptions:
    """How a cell runs.

    inputs: names that travel beside those that the cell's text reads.
    outputs: the only names that come back; None for all that the cell binds or changes.
    keep: names whose values stay on the worker.
    dry_run: print what would travel, and run nothing.
    large: allow more than `limit` bytes to travel.
    timeout: seconds until the cell is interrupted; None for no limit.
    plain: start the worker without `tandem run`, for cells that use no GPU.
    """

    inputs: Sequence[str] = ()
    outputs: Optional[Sequence[str]] = None
    keep: Sequence[str] = ()
    dry_run: bool = False
    large: bool = False
    limit: int = DEFAULT_LIMIT
    timeout: Optional[float] = None
    plain: bool = False

    @classmethod
    def of(cls, given):
        """Returns CellOptions from None, CellOptions, a mapping or an object with attributes."""
        if given is None or isinstance(given, cls):
            return given or cls()
        found = given if isinstance(given, dict) else vars(given)
        known = {f.name for f in fields(cls)}
        return cls(**{k: v for k, v in found.items() if k in known and v is not None})


@dataclass
class CellResult:
    """What IPython's ExecutionResult says, and what travelled.

    seconds: of the whole cell; sent_bytes, received_bytes: of its state; kept: paths of the
    values that stay on the worker; bound: names that came back.
    """

    error_before_exec: Optional[BaseException] = None
    error_in_exec: Optional[BaseException] = None
    result: Any = None
    seconds: float = 0.0
    sent_bytes: int = 0
    received_bytes: int = 0
    kept: list = field(default_factory=list)
    bound: list = field(default_factory=list)

    @property
    def success(self):
        """Returns whether the cell ran without an error."""
        return self.error_before_exec is None and self.error_in_exec is None

    def raise_error(self):
        """Raises the error of the cell, if there was one."""
        error = self.error_before_exec or self.error_in_exec
        if error is not None:
            raise error


def run_cell(shell, source, where, options=None):
    """Runs `source` on the worker at `where`; returns a CellResult.

    `where` is `local-worker`, `ssh://HOST`, `slurm:PARTITION` or the name of a kernel provisioner.
    Errors are in the result; after an error all local variables are as before the cell.
    """
    started = time.monotonic()
    result = CellResult()
    try:
        options = CellOptions.of(options)
        _Run(shell, source, session(shell, where), options, result).run()
    except (Error, SyntaxError, KeyboardInterrupt, TimeoutError) as error:
        if result.success:
            result.error_before_exec = error
    result.seconds = time.monotonic() - started
    return result


class _Run:
    """One cell on its way."""

    def __init__(self, shell, source, place, options, result):
        self._shell = shell
        self._source = source
        self._place = place
        self._options = options
        self._result = result

    def run(self):
        """Runs the cell; the result gets its outcome. Raises what stopped it before it ran."""
        self._place.refresh()
        package = self._prepare()
        if self._options.dry_run:
            self._print(package)
            return
        self._check_size(package)
        link = self._place.connect(self._options.plain)
        self._result.sent_bytes = package.nbytes
        try:
            self._exchange(link, package)
        except BaseException:
            self._place.notebook.failed()
            raise
        finally:
            package.release()

    def _prepare(self):
        namespace = self._shell.user_ns
        source = self._shell.transform_cell(self._source)
        count = self._shell.execution_count
        filename = self._shell.compile.get_code_name(self._source, source, count)
        found = cell_text.cell_names(source, filename)
        missing = [name for name in self._options.inputs if name not in namespace]
        if missing:
            raise RemoteCellError(f"-i {missing[0]}: the notebook has no such variable. Define it.")
        reads = cell_text.wanted(found.reads, namespace) | set(self._options.inputs)
        return self._place.notebook.prepare(reads)

    def _check_size(self, package):
        if self._options.large or package.nbytes <= self._options.limit:
            return
        largest = sorted(package.sizes.items(), key=lambda item: -item[1])[:3]
        shown = ", ".join(f"{name} {human(size)}" for name, size in largest)
        raise TooLarge(
            f"{human(package.nbytes)} would travel, more than {human(self._options.limit)}: "
            f"{shown}. Run the cell with --large, or make the data inside the cell."
        )

    def _print(self, package):
        for name, size in sorted(package.sizes.items()):
            print(f"{name:20} {human(size):>10}")
        print(f"{'total':20} {human(package.nbytes):>10}  about {package.nbytes / _ASSUMED_RATE:.2f} s")

    def _exchange(self, link, package):
        options, notebook = self._options, self._place.notebook
        header = notebook.header(package)
        request = {
            "outputs": None if options.outputs is None else list(options.outputs),
            "keep": list(options.keep),
            "limit": None if options.large else options.limit,
        }
        show = Outputs(self._shell)
        began = time.monotonic()
        reply, back, frames = link.request(
            self._source, request, (header, package.post()), show, options.timeout
        )
        if reply["status"] != "ok" or back is None:
            self._fail(reply, back, frames, time.monotonic() - began)
            return
        self._result.received_bytes = sum(n for r in back["records"] for _, n in r.ranges)
        with uninterrupted():
            self._result.bound = notebook.accept(back, frames)
        del frames
        link.received()
        self._tell_kept(back["kept"])

    def _tell_kept(self, kept):
        self._result.kept = [path for path, _ in kept]
        if kept:
            paths = ", ".join(self._result.kept)
            say(f"stays on the worker: {paths}. Remote cells can use it; %gpu fetch brings it.")

    def _fail(self, reply, back, frames, seconds):
        """Puts the exception of the cell, with the worker's traceback, into the result."""
        facts, notebook = reply.get("tandem", {}), self._place.notebook
        notebook.failed(facts.get("dirty"))
        error = notebook.rebuilt(back, frames) if back is not None else None
        if not isinstance(error, BaseException):
            error = error_of(reply)
        limit = self._options.timeout
        if isinstance(error, KeyboardInterrupt) and limit is not None and seconds >= limit:
            error = over_limit(limit)
        lines = reply.get("traceback") or []
        if lines and type(error) not in (CannotTravel, TimeLimitExceeded, RemoteCellError):
            try:
                error._render_traceback_ = lambda: lines
            except AttributeError:
                pass
        self._hint(error)
        self._result.error_in_exec = error

    def _hint(self, error):
        found = re.match(r"name '(\w+)' is not defined", str(error))
        name = found.group(1) if found and isinstance(error, NameError) else None
        if name in self._shell.user_ns:
            say(f"`{name}` is in the notebook, but the cell's text does not name it: add -i {name}")


def fetch(shell, name):
    """Brings the value of a variable from its worker; returns it.

    Raises KeyError for an unknown name, CannotTravel, WorkerLost. A value that is here is
    returned as it is.
    """
    from .proxy import RemoteValue
    from .session import sessions

    value = shell.user_ns[name]
    if not isinstance(value, RemoteValue):
        return value
    for place in sessions(shell):
        if place.notebook.table.entry_kind(value) == "kept":
            return place.fetch(value)
    raise WorkerLost(f"{name}: {'. '.join(RemoteValue.lost)}")


def human(size):
    """Returns a number of bytes in the unit that suits it."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return ""
