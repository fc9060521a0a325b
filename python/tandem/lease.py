"""Leases: the GPU held for a block or a function, and not a moment longer."""

import asyncio
import contextlib
import contextvars
import ctypes
import functools
import inspect
import os
import queue
import sys
import threading
import time
import warnings
from dataclasses import dataclass
from types import FrameType
from typing import Any, Callable, Mapping, Optional, Union

from . import _abi
from .errors import (
    Cancelled,
    Error,
    InvalidUse,
    NoAnswer,
    NoDevice,
    TooLarge,
    WaitTimeout,
)
from .limit import Stretches, TimeLimit, uninterrupted
from .units import Size, Time, format_size, format_time, parse_size, parse_time

CLASSES = ("production", "interactive", "batch", "opportunistic")


@dataclass(frozen=True)
class Wait:
    """What a block waits for. Times in seconds; `expected_s` is None where it is not known.

    `state` and `reason` are codes of docs/json.md; texts are empty as long as they are not known.
    """

    waited_s: float
    place: int
    expected_s: Optional[float]
    holder: str
    holders: int
    state: str
    reason: str
    gpu: str


OnWait = Callable[[Wait], Any]
Duration = Union[Time, Callable[..., Time]]


def _wait_of(wait: _abi.Wait) -> Wait:
    return Wait(
        waited_s=wait.waited_ms / 1000,
        place=wait.place,
        expected_s=wait.expected_ms / 1000 if wait.expected_ms >= 0 else None,
        holder=wait.holder.decode(errors="replace"),
        holders=wait.holders,
        state=wait.state.decode(),
        reason=wait.reason.decode(),
        gpu=wait.gpu.decode(),
    )


class _Lease:
    """One lease of the C interface, from `begin` to `end`, or to the end of this object.

    So an interrupt before a block has taken it over leaves no lease behind.
    """

    def __init__(self, api, block: "Block"):
        self._api = api
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._result: Optional[int] = None  # of the wait, once it has ended
        self._abandoned = False
        # The callback knows nothing else of the lease, which so goes with its last owner.
        posts = self._posts = [lambda news: None]

        def tell(_context, wait) -> int:
            posts[0](_wait_of(wait.contents))
            return 0

        self._callback = _abi.ON_WAIT(tell)
        wait_s = block.wait_s
        options = _abi.LeaseOptions(
            size=ctypes.sizeof(_abi.LeaseOptions),
            device=block.device,
            wait_ms=-1 if wait_s is None else round(wait_s * 1000),
            memory_bytes=block.memory_bytes,
            expected_ms=round((block.duration_s or 0) * 1000),
            work_class=block.work_class.encode() if block.work_class else None,
            on_wait=self._callback,
        )
        self._handle: Optional[ctypes.c_void_p] = ctypes.c_void_p()
        result = api.lease_create(options, ctypes.byref(self._handle))
        if result != _abi.OK:
            raise InvalidUse("tandem.gpu: the device or another argument is out of range")

    # The wait is a thread's own, so that an interrupt reaches the caller as in any Python code.
    def _waiter(self, post: Callable[[Any], Any]) -> threading.Thread:
        """A thread that waits: it posts a `Wait` about once a second, and a result at the end."""
        self._posts[0] = post
        return threading.Thread(target=self._wait, args=(post,), name="tandem.gpu", daemon=True)

    def _wait(self, post: Callable[[Any], Any]) -> None:
        result = self._api.lease_begin(self._handle)
        with self._lock:
            self._result = result
            if self._abandoned:
                self.end()
        post(result)

    def _abandon(self, waiter: threading.Thread) -> None:
        """Leaves the line. The thread that waits ends the lease; only it knows when it may."""
        with self._lock:
            self._abandoned = True
            if self._result is None:
                self._api.lease_cancel(self._handle)
            else:
                self.end()
        if waiter.ident is not None:
            waiter.join()

    def begin(self, on_wait: Optional[OnWait]) -> int:
        """Waits; returns a result of the C interface. What `on_wait` raises ends the wait."""
        news: "queue.SimpleQueue" = queue.SimpleQueue()
        waiter = self._waiter(news.put)
        try:
            waiter.start()
            while not isinstance(now := news.get(), int):
                if on_wait is not None:
                    on_wait(now)
            return now
        except BaseException:
            self._abandon(waiter)
            raise

    async def begin_async(self, on_wait: Optional[OnWait]) -> int:
        """As `begin`; other tasks run meanwhile. A cancellation ends the wait."""
        loop = asyncio.get_running_loop()
        news: "asyncio.Queue" = asyncio.Queue()
        waiter = self._waiter(lambda now: loop.call_soon_threadsafe(news.put_nowait, now))
        try:
            waiter.start()
            while not isinstance(now := await news.get(), int):
                if on_wait is not None:
                    on_wait(now)
            return now
        except BaseException:
            self._abandon(waiter)
            raise

    @uninterrupted
    def end(self) -> None:
        """Ends the lease. Safe to call again. Nothing in a child that was forked since."""
        handle, self._handle = self._handle, None
        if handle and self._pid == os.getpid():
            self._api.lease_destroy(handle)

    __del__ = end


# For each device, how many blocks of this thread, or of this task, hold it.
_depths: "contextvars.ContextVar[Mapping[int, int]]" = contextvars.ContextVar("depths", default={})
_told_unshared = False


@uninterrupted
def _deepen(device: int, by: int) -> None:
    depths = _depths.get()
    _depths.set({**depths, device: max(0, depths.get(device, 0) + by)})


def _tell_unshared() -> None:
    global _told_unshared
    if _told_unshared:
        return
    _told_unshared = True
    warnings.warn(
        "tandem.gpu has no effect: this process does not run under Tandem, or was forked from one that "
        "had used the GPU. Start the program with `tandem run -- python3 …`.",
        stacklevel=5,
    )


def _error(result: int, block: "Block") -> Error:
    if result == _abi.TIMEOUT:
        return WaitTimeout(
            f"GPU {block.device} did not come free within {format_time(block.wait_s or 0)}; "
            "wait longer (wait=…), or see who holds it with `tandem status`"
        )
    if result == _abi.TOO_LARGE:
        return TooLarge(
            f"memory={format_size(block.memory_bytes)} is more than this run may have; "
            "ask for less, or raise it with `tandem limit RUN --memory SIZE`"
        )
    if result == _abi.NO_DEVICE:
        return NoDevice(f"there is no GPU {block.device}; `tandem status` lists the GPUs")
    if result == _abi.NO_ANSWER:
        return NoAnswer("tandemd does not answer; start it again, or restart the program")
    if result == _abi.CANCELLED:
        return Cancelled("the wait for the GPU was cancelled")
    return InvalidUse("tandem.gpu: the call is out of place")


class Block:
    """The GPU for a block or a function; made by `tandem.gpu`.

    After the block, `waited_s` and `ran_s` say how long it waited and ran, in seconds.
    """

    def __init__(
        self,
        *,
        device: int = 0,
        wait: Time = None,
        memory: Size = None,
        duration: Duration = None,
        limit: Time = None,
        work_class: Optional[str] = None,
        on_wait: Optional[OnWait] = None,
    ):
        if not isinstance(device, int) or device < 0:
            raise InvalidUse(f"device={device!r} is no GPU; write its number, for example 0")
        if work_class is not None and work_class not in CLASSES:
            raise InvalidUse(f"work_class={work_class!r} is none of {', '.join(CLASSES)}")
        self.device = device
        self.wait_s = parse_time(wait)
        self.memory_bytes = parse_size(memory)
        self.duration = duration
        self.duration_s = None if callable(duration) else parse_time(duration)
        self.limit_s = parse_time(limit)
        self.work_class = work_class
        self.on_wait = on_wait
        self.waited_s = self.ran_s = 0.0
        self.shared = False
        self._lease: Optional[_Lease] = None
        self._limit: Optional[TimeLimit] = None
        self._entered = False

    @uninterrupted
    def __enter__(self) -> "Block":
        entered = sys._getframe(1)
        self.begin()
        self.start_limit(lambda frame: frame is entered)
        return self

    @uninterrupted
    async def __aenter__(self) -> "Block":
        entered = sys._getframe(1)
        began = time.monotonic()
        lease = self._new_lease()
        if lease is not None:
            self._keep(lease, await lease.begin_async(self.on_wait))
        self._begin(began)
        self.start_limit(lambda frame: frame is entered)
        return self

    def begin(self) -> None:
        """Waits for the GPU, without the limit; `__exit__` ends it. Raises as `gpu` does."""
        began = time.monotonic()
        lease = self._new_lease()
        if lease is not None:
            self._keep(lease, lease.begin(self.on_wait))
        self._begin(began)

    def _new_lease(self) -> Optional[_Lease]:
        """A lease to wait for; None where none is needed, or Tandem is not there."""
        if self._entered:
            raise InvalidUse("this block is entered already; write `with tandem.gpu():` again")
        if _depths.get().get(self.device, 0) != 0:
            return None
        api = _abi.api()
        if api is None:
            _tell_unshared()
            return None
        return _Lease(api, self)

    def _begin(self, began: float) -> None:
        self._entered = True
        _deepen(self.device, 1)
        self._began = time.monotonic()
        self.waited_s = self._began - began

    @uninterrupted
    def start_limit(self, runs: Callable[[FrameType], bool]) -> None:
        """Starts the limit, if there is one. `runs`: see TimeLimit."""
        if self.limit_s is not None:
            self._limit = TimeLimit(self.limit_s, runs)
            self._limit.start()

    def limit_error(self, error: BaseException) -> Optional[BaseException]:
        """Returns what to raise in place of `error`, where the limit has caused it; else None."""
        return None if self._limit is None else self._limit.error_for(error)

    def suspended(self):
        """Returns a context in which the limit raises nothing: an asynchronous generator waits."""
        return contextlib.nullcontext() if self._limit is None else self._limit.paused()

    def stretches(self, generator):
        """Returns a generator in which the limit raises nothing while it is suspended."""
        return generator if self._limit is None else Stretches(generator, self._limit)

    def _keep(self, lease: _Lease, result: int) -> None:
        if result == _abi.OK:
            self._lease = lease
            self.shared = True
            return None
        lease.end()
        if result == _abi.UNAVAILABLE:
            return _tell_unshared()
        raise _error(result, self)

    @uninterrupted
    def __exit__(self, kind, error, trace) -> bool:
        limit, self._limit = self._limit, None
        self._entered = False
        _deepen(self.device, -1)
        self.ran_s = time.monotonic() - self._began
        if self._lease is not None:
            self._lease.end()
            self._lease = None
        if limit is not None:
            limit.stop(error)
        return False

    @uninterrupted
    async def __aexit__(self, kind, error, trace) -> bool:
        return self.__exit__(kind, error, trace)

    def _again(self, arguments, keywords) -> "Block":
        """A block with the same options, for one call of a function."""
        duration = self.duration
        return Block(
            device=self.device,
            wait=self.wait_s,
            memory=self.memory_bytes,
            duration=duration(*arguments, **keywords) if callable(duration) else duration,
            limit=self.limit_s,
            work_class=self.work_class,
            on_wait=self.on_wait,
        )

    def __call__(self, function: Callable) -> Callable:
        if not callable(function):
            raise InvalidUse("tandem.gpu decorates functions: `@tandem.gpu(duration=60)`")
        return _wrapped(self, function)


def _wrapped(block: Block, function: Callable) -> Callable:
    """`function` with a lease for each call; for a generator as long as it runs."""
    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def generate_async(*arguments, **keywords):
            async with block._again(arguments, keywords) as held:
                async for value in function(*arguments, **keywords):
                    with held.suspended():
                        yield value

        return generate_async
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(*arguments, **keywords):
            async with block._again(arguments, keywords):
                return await function(*arguments, **keywords)

        return call_async
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generate(*arguments, **keywords):
            with block._again(arguments, keywords) as held:
                return (yield from held.stretches(function(*arguments, **keywords)))

        return generate

    @functools.wraps(function)
    def call(*arguments, **keywords):
        with block._again(arguments, keywords):
            return function(*arguments, **keywords)

    return call


def gpu(function: Optional[Callable] = None, **options) -> Any:
    """Holds a GPU for a block (`with tandem.gpu():`) or for each call of a function (`@tandem.gpu`).

    device: number of the GPU, as the program sees it.
    wait: how long to wait at most, as seconds or "5m"; without it for as long as it takes. 0: not
        at all.
    memory: how much device memory the block will need, as bytes or "8G"; the block begins when that
        much can be there.
    duration: about how long the block needs the GPU, as seconds or "30s"; for a decorator also a
        function of the arguments. Short blocks go first, as long as they keep to it.
    limit: how long the block may run; then TimeLimitExceeded is raised in it, and again where the
        block's code has caught it. A call into the driver ends first. The time of a generator goes on
        while it is suspended; the exception is raised when it runs.
    work_class: "production", "interactive", "batch" or "opportunistic"; without it as the run has it.
    on_wait: called with a `Wait` about once a second while the block waits.

    The block gives the GPU up at its end, also after an exception; its memory stays on the card until
    others need the room. A long block is interrupted at the end of its turn and goes on later, which
    it does not notice. Blocks inside a block take no second lease. Without Tandem the block runs as it
    is, and a warning says so once.

    In a coroutine write `async with tandem.gpu():`, or decorate it: other tasks run while it waits.

    Raises WaitTimeout, TimeLimitExceeded, TooLarge, NoDevice, NoAnswer, InvalidUse; all are Error. An
    interrupt while it waits leaves the line.
    """
    if function is None:
        return Block(**options)
    return Block(**options)(function)
