"""Waits in the middle of a cell: in a call into the driver, after the turn of the cell has ended.

A thread beside the cells asks the daemon once a second while one runs. Such a wait cannot be left by
an interrupt, and no line appears while the waiting call keeps Python's lock.
"""

import os
import threading
import time
from typing import Optional

from .. import _abi
from ..errors import NoAnswer
from ..lease import Wait
from ..status import query

_PERIOD_S = 1.0
_REST_S = 30.0  # after the last cell the thread sleeps


def middle_wait(lease: bool) -> Optional[Wait]:
    """Returns what this program waits for by now, or None.

    `lease`: whether the cell has one; a program without work in flight that is suspended waits then.
    """
    try:
        sessions = query("sessions")["sessions"]
    except NoAnswer:
        return None
    states = ("waiting", "suspended") if lease else ("waiting",)
    names = {session["id"]: session["name"] for session in sessions}
    for session in sessions:
        if session["pid"] != os.getpid() or session["state"] not in states:
            continue
        holders = [names[number] for number in session["held_by"] or () if number in names]
        return Wait(
            waited_s=0.0,
            place=session["place"] or 0,
            expected_s=session["expected_wait_s"],
            holder=holders[0] if holders else "",
            holders=len(holders),
            state=session["state"],
            reason=session["reason_code"] or "",
            gpu=f"gpu{session['gpu']}",
        )
    return None


class MiddleWaits:
    """Shows the waits of the cell that runs. `begin` and `end` are called by the cells' thread."""

    def __init__(self):
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._display = None
        self._lease = False
        self._began = self._ended = self._waited_s = 0.0

    def begin(self, display, lease: bool = False) -> None:
        """A cell runs from now on; its waits are shown by `display`."""
        if _abi.api() is None:
            return
        self._began, self._lease, self._waited_s = time.monotonic(), lease, 0.0
        self._display = display
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._watch, name="tandem.waits", daemon=True)
            self._thread.start()
        self._wake.set()

    def end(self) -> float:
        """The cell has ended, or waits in another way. Returns about how long it has waited."""
        with self._lock:
            self._display = None
        self._ended = time.monotonic()
        return self._waited_s

    def _watch(self) -> None:
        while True:
            if self._display is None and time.monotonic() - self._ended > _REST_S:
                self._wake.clear()
                if self._display is None:
                    self._wake.wait()
            time.sleep(_PERIOD_S)
            display, began = self._display, self._began
            if display is None or time.monotonic() - began < _PERIOD_S:
                continue
            wait = middle_wait(self._lease)
            with self._lock:
                if self._display is display:
                    self._waited_s += _PERIOD_S if wait is not None else 0.0
                    display.on_middle(wait, self._waited_s)
