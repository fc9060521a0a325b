"""Values that cannot travel to another process, and what to do instead.

Each row: the module that has to be loaded for the type to exist, the name of the type in it, what
the value is, and the advice. A loaded module is looked up, never imported.
"""

import io
import sys
import types  # noqa: F401 the rows look it up

from .errors import CannotTravel

_INSIDE = "Create it inside the cell"
_ROWS = (
    ("types", "GeneratorType", "a generator", _INSIDE + ", or turn it into a list"),
    ("types", "CoroutineType", "a coroutine", _INSIDE),
    ("types", "AsyncGeneratorType", "an asynchronous generator", _INSIDE),
    ("types", "FrameType", "a stack frame", "Remove the reference to it"),
    ("types", "TracebackType", "a traceback", "Remove the reference to it"),
    ("_thread", "LockType", "a lock", _INSIDE),
    ("_thread", "RLock", "a lock", _INSIDE),
    ("threading", "Thread", "a thread", "Start it inside the cell"),
    ("threading", "Condition", "a condition variable", _INSIDE),
    ("threading", "Event", "a thread event", _INSIDE),
    ("threading", "Semaphore", "a semaphore", _INSIDE),
    ("_thread", "_local", "thread-local data", _INSIDE),
    ("socket", "socket", "a socket", "Connect inside the cell"),
    ("ssl", "SSLContext", "a TLS context", _INSIDE),
    ("sqlite3", "Connection", "a database connection", "Connect inside the cell"),
    ("sqlite3", "Cursor", "a database cursor", _INSIDE),
    ("subprocess", "Popen", "a running process", "Start it inside the cell"),
    ("mmap", "mmap", "a memory map", "Map the file inside the cell"),
    ("ctypes", "CDLL", "a loaded library", "Load it inside the cell"),
    ("_ctypes", "CFuncPtr", "a function of a loaded library", "Load it inside the cell"),
    ("select", "epoll", "an epoll object", _INSIDE),
    ("queue", "Queue", "a queue between threads", _INSIDE),
    ("queue", "SimpleQueue", "a queue between threads", _INSIDE),
    ("_queue", "SimpleQueue", "a queue between threads", _INSIDE),
    ("multiprocessing.queues", "Queue", "a queue between processes", _INSIDE),
    ("multiprocessing.process", "BaseProcess", "a process", "Start it inside the cell"),
    ("concurrent.futures", "Executor", "an executor", _INSIDE),
    ("concurrent.futures", "Future", "a future", "Wait for its result before the cell"),
    ("asyncio", "AbstractEventLoop", "an event loop", _INSIDE),
    ("asyncio", "Future", "an asyncio future", "Wait for its result before the cell"),
    ("zmq", "Socket", "a socket", "Connect inside the cell"),
    ("zmq", "Context", "a ZeroMQ context", _INSIDE),
    (
        "torch.utils.data.dataloader",
        "_BaseDataLoaderIter",
        "an iterator of a DataLoader",
        "Call iter() on the DataLoader inside the cell",
    ),
)


def check(value):
    """Raises CannotTravel, with an empty path, where `value` cannot leave this process."""
    if isinstance(value, io.IOBase) and not isinstance(value, (io.BytesIO, io.StringIO)):
        name = getattr(value, "name", None)
        what = f"an open file ({name!r})" if name is not None else "an open file"
        raise _refusal(what, "Open it inside the cell")
    for module, name, what, advice in _ROWS:
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type) and isinstance(value, kind):
            raise _refusal(what, advice)


def no_pickle(value, error):
    """Returns the CannotTravel for a value whose own pickling failed with `error`."""
    kind = type(value)
    reason = f"a {kind.__module__}.{kind.__qualname__} cannot be pickled ({error})"
    return CannotTravel("", reason, _INSIDE + ", or leave it out of the names that the cell reads")


def _refusal(what, advice):
    return CannotTravel("", f"{what} cannot travel to another process", advice + ".")
