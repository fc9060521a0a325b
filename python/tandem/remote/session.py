"""A notebook and its worker at one place: starts a worker when one is needed, and says so."""

import atexit
import signal
import sys
import threading
import weakref
from contextlib import contextmanager

from .errors import WorkerLost
from .exchange import Notebook
from .link import Link
from .proxy import RemoteValue
from .shadow import Shadows

_sessions = weakref.WeakKeyDictionary()  # shell -> {place: Session}


class Session:
    """The state that a notebook shares with the worker at `where`."""

    def __init__(self, shell, where):
        self.where = where
        self.notebook = Notebook(shell.user_ns)
        self.link = None
        self._had_worker = False

    def refresh(self):
        """Forgets a worker that has ended since the last cell."""
        if self.link is not None and not self.link.alive():
            self.link.end(self.link.lost or "its process ended")
            self.link = None
        if self.link is None:
            self.notebook.forget_worker()

    def connect(self, plain):
        """Returns the link to a running worker, after a start where there was none."""
        if self.link is None:
            if self._had_worker:
                say(f"the worker at {self.where} has ended; a new one starts.")
            self.link = Link(self.where, plain)
            self.notebook.table.shadows = Shadows() if self.link.same_host else None
            self._had_worker = True
        return self.link

    def fetch(self, proxy):
        """Returns the value of a proxy; all names that had the proxy get the value."""
        number = self.notebook.table.number(proxy)
        kept = self.notebook.table.entry_kind(proxy) == "kept"
        if self.link is None or self.link.lost or not kept:
            raise WorkerLost(f"The value cannot be fetched: {'. '.join(RemoteValue.lost)}")
        package = self.notebook.prepare(())
        state = self.notebook.header(package)
        try:
            request = "", {"fetch": number}, (state, package.post())
            reply, header, frames = self.link.request(*request)
        except BaseException:
            self.notebook.failed()
            raise
        finally:
            package.release()
        if header is None:
            self.notebook.failed(reply["tandem"]["dirty"])
            raise error_of(reply)
        with uninterrupted():
            return self.notebook.fetched(proxy, header, frames)

    def stop(self):
        """Ends the worker."""
        if self.link is not None:
            self.link.end("it was stopped")
            self.link = None


def session(shell, where):
    """Returns the session of a shell with the worker at a place."""
    places = _sessions.setdefault(shell, {})
    if where not in places:
        places[where] = Session(shell, where)
    return places[where]


def sessions(shell):
    """Returns the list of sessions of a shell."""
    return list(_sessions.get(shell, {}).values())


@atexit.register
def stop_all():
    """Ends all workers of this process."""
    for places in list(_sessions.values()):
        for found in places.values():
            found.stop()


def say(text):
    """Prints a line of Tandem's own on stderr."""
    print(f"tandem: {text}", file=sys.stderr, flush=True)


def error_of(reply):
    """Returns the exception for a reply of the worker that has no exception object."""
    from . import errors

    facts = reply.get("tandem", {})
    if "path" in facts:
        return errors.CannotTravel(*facts["path"])
    ename, evalue = reply.get("ename", "Error"), reply.get("evalue", "")
    if ename == "RemoteCellError":
        return errors.RemoteCellError(evalue)
    if ename == "KeyboardInterrupt":
        return KeyboardInterrupt(evalue)
    kind = type(ename, (errors.RemoteException,), {"__module__": "tandem.remote.errors"})
    error = kind(ename, evalue, reply.get("traceback", ()))
    error.args = (evalue,)
    return error


@contextmanager
def uninterrupted():
    """Delays Ctrl-C until a change of the user's objects is complete."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed = []
    before = signal.signal(signal.SIGINT, lambda *_: pressed.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt
