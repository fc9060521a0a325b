"""Share a GPU: hold it for a block, a function or a notebook cell, and not a moment longer.

    import tandem

    with tandem.gpu(wait="5m"):
        ...                          # CUDA work, with any framework

    @tandem.gpu(duration=30)
    def generate(prompt): ...

In a notebook: `%load_ext tandem`, then `%%gpu` on the first line of a cell.

Programs run unchanged under `tandem run`; this package adds waits that can be seen and left, and
the end of a block that is told at once. Without Tandem its blocks have no effect.
"""

from .errors import (
    Cancelled,
    Error,
    InvalidUse,
    NoAnswer,
    NoDevice,
    NotShared,
    TimeLimitExceeded,
    TooLarge,
    WaitTimeout,
)
from .lease import Block, Wait, gpu
from .notebook.argv import argv
from .status import Status, query, release, status

__all__ = [
    "Block",
    "Cancelled",
    "Error",
    "InvalidUse",
    "NoAnswer",
    "NoDevice",
    "NotShared",
    "Status",
    "TimeLimitExceeded",
    "TooLarge",
    "Wait",
    "WaitTimeout",
    "argv",
    "gpu",
    "query",
    "release",
    "status",
]


def load_ipython_extension(shell) -> None:
    """For `%load_ext tandem`."""
    from .ipython.magics import load

    load(shell)
