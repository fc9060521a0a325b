"""A limit on how long a block may run."""

import ctypes
import signal
import threading
import time
from typing import Any

from .errors import TimeLimitExceeded
from .units import format_time


class TimeLimit:
    """Raises TimeLimitExceeded in the calling thread after `seconds`, until `stop`.

    In the main thread by SIGINT, which also ends a wait in a system call; in others the exception
    comes with the next Python instruction. A call into the driver ends first.
    """

    def __init__(self, seconds: float):
        text = (
            f"the block ran for more than its limit of {format_time(seconds)}; "
            "raise the limit, or do less in one block"
        )
        # Raised asynchronously as a class, which is then made without arguments.
        self._error = type(
            "TimeLimitExceeded",
            (TimeLimitExceeded,),
            {"__init__": lambda error: TimeLimitExceeded.__init__(error, text)},
        )
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self._thread = threading.current_thread()
        self._in_main = self._thread is threading.main_thread()
        self._lock = threading.Lock()
        self._over = self._fired = False
        self._before: Any = None

    def start(self) -> None:
        if self._in_main:
            self._before = signal.signal(signal.SIGINT, self._on_interrupt)
        self._timer.start()

    def _on_interrupt(self, number, frame):
        if self._fired:
            raise self._error()
        if callable(self._before):
            return self._before(number, frame)
        return None

    def _end(self) -> None:
        with self._lock:
            if self._over:
                return
            self._fired = True
            if self._in_main:
                signal.pthread_kill(self._thread.ident, signal.SIGINT)
            else:
                identity = ctypes.c_ulong(self._thread.ident)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(identity, ctypes.py_object(self._error))

    def stop(self, error) -> None:
        """The block has ended, with the exception `error` or None.

        Raises TimeLimitExceeded where the limit had passed by then and it did not end the block.
        """
        with self._lock:
            self._over = True
            fired = self._fired
        self._timer.cancel()
        try:
            if fired and not isinstance(error, self._error):
                self._await_it()
        finally:
            if self._in_main:
                signal.signal(signal.SIGINT, self._before)

    def _await_it(self) -> None:
        """It is on its way, and must not hit what follows the block."""
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            time.sleep(0.01)
