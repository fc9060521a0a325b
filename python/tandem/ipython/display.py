"""What a cell shows while it waits for the GPU, and after it ran."""

import html
import sys
from dataclasses import replace
from typing import Optional

from ..lease import Wait
from ..units import format_time

_SHOWN_FROM_S = 1.0  # shorter waits are not worth a line


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }".replace(" ", "")


def wait_text(wait: Wait) -> str:
    """Returns one line about a wait that an interrupt ends, for people."""
    return f"{_about(wait)}. Interrupt the kernel to leave the line."


def _about(wait: Wait) -> str:
    gpu = wait.gpu or "the GPU"
    parts = []
    if wait.state == "suspended":
        parts.append("this program is suspended; `tandem resume` lets it go on")
    elif wait.place:
        expected = "" if wait.expected_s is None else f", about {format_time(wait.expected_s)}"
        parts.append(f"{_ordinal(wait.place)} in line{expected}")
    else:
        parts.append(f"{format_time(wait.waited_s)} so far")
    if wait.holder:
        others = f" and {wait.holders - 1} more" if wait.holders > 1 else ""
        verb = "hold it" if others else "holds it"
        parts.append(f"{wait.holder}{others} {verb}")
    return f"Waiting for {gpu}: {'; '.join(parts)}"


class CellDisplay:
    """One line below a cell: kept current while the cell waits, then what it waited and ran.

    Notebook front ends get display data that is updated in place; a terminal gets a line on stderr.
    """

    def __init__(self, shell, quiet: bool = False):
        self._shell, self._quiet = shell, quiet
        self._in_kernel = hasattr(shell, "kernel")
        self._handle = None
        self._drawn = False
        self._in_middle = False
        self._gpu = ""

    def on_wait(self, wait: Wait) -> None:
        """Shows what the cell waits for."""
        self._gpu = wait.gpu or self._gpu
        if not self._quiet:
            self._show(wait_text(wait))

    def on_middle(self, wait: Optional[Wait], waited_s: float) -> None:
        """Shows what the cell waits for in the middle of its work; None: for nothing now."""
        waiting, self._in_middle = self._in_middle, wait is not None
        if wait is not None:
            waited = replace(wait, waited_s=waited_s)
            self._gpu = wait.gpu or self._gpu
            if not self._quiet:
                self._show(f"{_about(waited)}. The cell goes on by itself.")
        elif waiting:
            self.on_granted()

    def on_granted(self) -> None:
        """The wait is over, and the cell runs."""
        if self._drawn:
            self._show(f"Running on {self._gpu or 'the GPU'}.")

    def on_refused(self) -> None:
        """The wait is over, and the cell does not run."""
        if self._drawn:
            self._show("Left the line.")
            self._end_line()

    def on_end(self, waited_s: float, ran_s: float) -> None:
        """The cell has ended."""
        if self._quiet or (not self._drawn and waited_s < _SHOWN_FROM_S):
            return
        waited, ran = format_time(waited_s), format_time(ran_s)
        self._show(f"Waited {waited}, ran {ran} on {self._gpu or 'the GPU'}.")
        self._end_line()

    def _show(self, text: str) -> None:
        self._drawn = True  # first: an interrupt may come once it is on the page
        if not self._in_kernel:
            sys.stderr.write(f"\r\x1b[K{text}" if sys.stderr.isatty() else f"{text}\n")
            sys.stderr.flush()
        else:
            self._display(text)

    def _display(self, text: str) -> None:
        from IPython.display import DisplayHandle

        style = "color: gray; font-size: 90%"
        data = {
            "text/plain": text,
            "text/html": f'<div style="{style}">{html.escape(text)}</div>',
        }
        if self._handle is None:
            self._handle = DisplayHandle()
            self._handle.display(data, raw=True)
        else:
            self._handle.update(data, raw=True)

    def _end_line(self) -> None:
        if not self._in_kernel and sys.stderr.isatty():
            sys.stderr.write("\n")


def shared_kernel_hint(shell) -> Optional[str]:
    """What to tell in a kernel that does not run under Tandem; None where it does."""
    from .. import _abi

    if _abi.api() is not None:
        return None
    if hasattr(shell, "kernel"):
        return (
            "This kernel does not run under Tandem, so %%gpu has no effect. "
            'Run `tandem jupyter install --user` once, and choose the kernel "Python 3 (shared GPU)".'
        )
    return "This shell does not run under Tandem: start it with `tandem run -- ipython`."
