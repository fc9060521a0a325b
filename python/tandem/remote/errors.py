"""Errors of remote cells. Each message names the variable and says what to do next."""

from ..errors import Error, TimeLimitExceeded
from ..units import format_time


class RemoteCellError(Error):
    """The base of all errors of remote cells."""


class CannotTravel(RemoteCellError):
    """A value cannot be sent to another process.

    `path` is the Python expression that leads to the value, for example `model.cache["f"]`.
    """

    def __init__(self, path, reason, advice):
        super().__init__(f"{path}: {reason}. {advice}")
        self.path = path
        self.reason = reason
        self.advice = advice


class TooLarge(RemoteCellError):
    """The state of a cell exceeds the limit, and the option that allows it is not given."""


class StaysOnWorker(RemoteCellError):
    """A value of the worker was used here before it was fetched."""


class WorkerMismatch(RemoteCellError):
    """The worker's Python or cloudpickle differs from the notebook's."""


class WorkerLost(RemoteCellError):
    """The worker died, or the connection to it was cut."""


class WorkerStartFailed(RemoteCellError):
    """The worker's kernel did not start."""


class RemoteException(RemoteCellError):
    """An exception of the cell whose own type cannot be rebuilt here.

    `ename`, `evalue` and `traceback` are the worker's words.
    """

    def __init__(self, ename, evalue, traceback=()):
        super().__init__(f"{ename}: {evalue}")
        self.ename = ename
        self.evalue = evalue
        self.traceback = list(traceback)


def over_limit(seconds):
    """Returns the error of a cell that was interrupted after its limit."""
    return TimeLimitExceeded(
        f"the cell ran for more than its limit of {format_time(seconds)}; raise the limit, or do "
        "less in one cell"
    )
