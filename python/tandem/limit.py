"""A limit on how long a block may run."""

import asyncio
import contextlib
import ctypes
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any, Callable, Iterator, Optional

from .errors import TimeLimitExceeded
from .units import format_time

_AGAIN_S = 0.2  # between two looks at a block that has not ended
_SOON_S = 0.01  # where it could not be interrupted just then
_ARRIVAL_S = 1  # in which an exception reaches a thread that runs Python code

_TRANSPARENT = ("threading", "contextlib", "signal", "enum")

_uninterrupted = set()  # the code of functions that must not end in the middle


def uninterrupted(function):
    """Marks a function in which no limit raises: it begins or ends a block. A decorator."""
    _uninterrupted.add(function.__code__)
    return function


def _may_be_interrupted(frame: Optional[FrameType]) -> bool:
    # What these modules run, they run for their caller.
    while frame is not None and frame.f_globals.get("__name__") in _TRANSPARENT:
        frame = frame.f_back
    return frame is None or frame.f_code not in _uninterrupted


class TimeLimit:
    """Raises TimeLimitExceeded in the calling thread after `seconds`, until `stop`.

    In the main thread by SIGINT, which also ends a wait in a system call; in others the exception
    comes with the next Python instruction. A call into the driver ends first. Where the block's
    code catches the exception, it is raised again as soon as the handler has ended.

    Where an event loop handles SIGINT itself, the exception is raised only while the block's own code
    runs: `runs` says so of a frame. Else the loop would end, and with it a notebook's kernel. Its
    handler cancels the coroutine instead, and `error_for` knows the CancelledError.

    A generator calls `pause` before it hands out a value, and `resume` when it goes on: meanwhile
    nothing is raised, and the thread's handler of SIGINT is the one from before.

    Invariant: an exception that was sent (`_pending`) arrives before `pause` or `stop` returns.
    One that would hit the begin or the end of the block is not raised there, but sent again.
    """

    def __init__(self, seconds: float, runs: Callable[[FrameType], bool]):
        text = (
            f"the block ran for more than its limit of {format_time(seconds)}; "
            "raise the limit, or do less in one block"
        )

        def arrive(error) -> None:
            self._pending = False
            TimeLimitExceeded.__init__(error, text)

        # Raised asynchronously as a class, which is then made without arguments.
        self._error = type("TimeLimitExceeded", (TimeLimitExceeded,), {"__init__": arrive})
        self._seconds = seconds
        self._due = float("inf")  # until the start
        self._runs = runs
        self._watcher = threading.Thread(target=self._watch, name="tandem.limit", daemon=True)
        self._lock = threading.Lock()
        self._over = self._fired = False
        self._running = False  # the block's code runs, in the thread `_target`
        self._sent = self._pending = False
        self._cancelled = False  # by the handler of an event loop
        self._target = 0
        self._armed = False  # SIGINT has our handler
        self._before: Any = None
        self._ended = threading.Event()
        self._loop: Optional[asyncio.AbstractEventLoop] = None

    @uninterrupted
    def start(self) -> None:
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            pass
        self.resume()
        self._due = time.monotonic() + self._seconds
        self._watcher.start()

    @uninterrupted
    def resume(self) -> Optional[BaseException]:
        """The block's code goes on in this thread. Returns what to raise there, or None."""
        if self._running:
            return None
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._on_interrupt)
            self._armed = True
        with self._lock:
            self._target, self._running = threading.get_ident(), True
            self._sent = self._sent or self._fired
        return self._error() if self._fired else None

    @uninterrupted
    def pause(self) -> None:
        """The block's code runs no longer. Raises TimeLimitExceeded where that is on its way."""
        try:
            with self._lock:
                self._running = False
            deadline = time.monotonic() + _ARRIVAL_S
            while self._pending and time.monotonic() < deadline:
                time.sleep(0.001)
        finally:
            if self._armed:
                self._armed = False
                signal.signal(signal.SIGINT, self._before)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Pauses for a block, and raises TimeLimitExceeded after it where the time is over."""
        self.pause()
        try:
            yield
        finally:
            error = self.resume()
        if error is not None:
            raise error

    def _on_interrupt(self, number, frame):
        if self._pending:
            self._pending = False
            if not _may_be_interrupted(frame):
                self._sent = False
                return None
            if self._may_raise(frame):
                raise self._error()
            self._cancelled = True
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

    def _watch(self) -> None:
        wait_s = self._seconds
        while not self._ended.wait(wait_s):
            with self._lock:
                if self._over:
                    return
                self._fired = True
                if self._running and (not self._sent or self._was_caught()):
                    self._send()
                wait_s = _AGAIN_S if self._sent or not self._running else _SOON_S
            # A loop that waits does not notice what a handler of signals has asked it to do.
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(lambda: None)

    def _send(self) -> None:
        if not _may_be_interrupted(sys._current_frames().get(self._target)):
            return
        self._sent = self._pending = True
        if self._armed:
            signal.pthread_kill(self._target, signal.SIGINT)
        else:
            error = ctypes.py_object(self._error)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._target), error)

    def _was_caught(self) -> bool:
        """Returns whether the exception has arrived, and no handler of it runs any more.

        What an event loop has cancelled is not cancelled again: it may await things as it ends.
        """
        if self._pending or self._cancelled:
            return False
        found = getattr(sys, "_current_exceptions", dict)().get(self._target)
        error = found[1] if isinstance(found, tuple) else found
        while error is not None and not isinstance(error, self._error):
            error = error.__context__
        return error is None

    @uninterrupted
    def stop(self, error) -> None:
        """The block has ended, with the exception `error` or None.

        Raises TimeLimitExceeded where the time was over by then and the block ended as if it was not.
        """
        with self._lock:
            self._over = True
            fired = self._fired = self._fired or time.monotonic() >= self._due
        self._ended.set()
        instead = self.error_for(error)
        try:
            self.pause()
        except self._error:
            if not isinstance(error, self._error):
                raise
        if instead is not None:
            raise instead from error
        if fired and error is None:
            raise self._error()


class Stretches:
    """A generator whose limit pauses while it is suspended. For `yield from`."""

    def __init__(self, generator, limit: TimeLimit):
        self._generator = generator
        self._limit = limit

    def __iter__(self) -> "Stretches":
        return self

    def __next__(self):
        return self.send(None)

    def send(self, value):
        return self._stretch(self._generator.send, value)

    def throw(self, *error):
        return self._stretch(self._generator.throw, *error)

    def close(self) -> None:
        self._generator.close()

    @uninterrupted
    def _stretch(self, go_on, *arguments):
        late = self._limit.resume()
        try:
            return go_on(*arguments) if late is None else self._generator.throw(late)
        finally:
            self._limit.pause()
