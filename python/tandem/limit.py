"""A limit on how long a block may run."""

import asyncio
import ctypes
import signal
import threading
import time
from types import FrameType
from typing import Any, Callable, Optional

from .errors import TimeLimitExceeded
from .units import format_time

_WAKE_S = 0.2


class TimeLimit:
    """Raises TimeLimitExceeded in the calling thread after `seconds`, until `stop`.

    In the main thread by SIGINT, which also ends a wait in a system call; in others the exception
    comes with the next Python instruction. A call into the driver ends first.

    Where an event loop handles SIGINT itself, the exception is raised only while the block's own code
    runs: `runs` says so of a frame. Else the loop would end, and with it a notebook's kernel. Its
    handler cancels the coroutine instead, and `error_for` knows the CancelledError.
    """

    def __init__(self, seconds: float, runs: Callable[[FrameType], bool]):
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
        self._runs = runs
        self._ended = threading.Event()
        self._loop: Optional[asyncio.AbstractEventLoop] = None

    def start(self) -> None:
        if self._in_main:
            try:
                self._loop = asyncio.get_running_loop()
            except RuntimeError:
                pass
            self._before = signal.signal(signal.SIGINT, self._on_interrupt)
        self._timer.start()

    def _on_interrupt(self, number, frame):
        if self._fired and self._may_raise(frame):
            raise self._error()
        if callable(self._before):
            return self._before(number, frame)
        return None

    def _may_raise(self, frame: Optional[FrameType]) -> bool:
        if self._before is signal.default_int_handler or not callable(self._before):
            return True
        while frame is not None and not self._runs(frame):
            frame = frame.f_back
        return frame is not None

    def error_for(self, error: Optional[BaseException]) -> Optional[BaseException]:
        """Returns what to raise in place of `error`, where the limit has caused it; else None."""
        if self._fired and isinstance(error, asyncio.CancelledError):
            return self._error()
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
        # A loop that waits does not notice what a handler of signals has asked it to do.
        while self._loop is not None and not self._ended.wait(_WAKE_S):
            if self._loop.is_closed():
                return
            self._loop.call_soon_threadsafe(lambda: None)

    def stop(self, error) -> None:
        """The block has ended, with the exception `error` or None.

        Raises TimeLimitExceeded where the limit had passed by then and it did not end the block.
        """
        with self._lock:
            self._over = True
            fired = self._fired
        self._timer.cancel()
        self._ended.set()
        instead = self.error_for(error)
        try:
            if instead is not None:
                raise instead from error
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
