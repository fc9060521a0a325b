"""The connection of a notebook to one worker: start, one request at a time, interrupts, the end.

Jupyter's sockets are used directly by the thread that runs the cells. The kernel manager's own
methods run event loops, so they run on a thread of their own, beside the notebook's loop.
"""

import asyncio
import contextlib
import itertools
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, wait

import zmq

from . import launch
from .bulk import Channel
from .errors import WorkerLost, WorkerMismatch, WorkerStartFailed, over_limit
from .versions import versions

START_TIMEOUT_S = 60
GRACE_S = 5  # from an interrupt to the end of a worker that does not react
_ALIVE_EVERY_S = 0.5
_TRANSFER_TIMEOUT_S = 600
_MANAGER_TIMEOUT_S = 120


class Link:
    """A worker that runs. `where` names its place; `hello` is what it says about itself."""

    def __init__(self, where, plain=False):
        self.where = where
        self.lost = None  # why the worker has ended, or None
        self._cells = itertools.count(1)
        self._thread = ThreadPoolExecutor(1, "tandem-worker")
        self._log = tempfile.TemporaryFile()
        self._manager = launch.manager(where, plain)
        self._sockets = {}
        self._bulk = None
        self._context = self._manager.context = zmq.Context()
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    # Start and end.

    def _start(self):
        try:
            self._call(
                self._manager.start_kernel,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env=launch.environment(),
                patience=getattr(self._manager.provisioner, "start_timeout_s", _MANAGER_TIMEOUT_S),
            )
        except Exception as error:  # provisioners are foreign code
            raise WorkerStartFailed(f"No worker at {self.where}: {error}") from error
        manager = self._manager
        identity = manager.session.bsession  # the worker asks for input where requests come from
        self._sockets["shell"] = manager.connect_shell(identity=identity)
        self._sockets["stdin"] = manager.connect_stdin(identity=identity)
        self._sockets["iopub"] = manager.connect_iopub()
        self.hello = self._greet()
        bulk, provisioner = self.hello["bulk"], manager.provisioner
        if hasattr(provisioner, "tunnel"):
            bulk = provisioner.tunnel(bulk)
        self.same_host = getattr(provisioner, "same_host", manager.transport == "ipc")
        key = manager.session.key
        self._bulk = Channel(self._context, bulk, key, shared=self.same_host)

    def _greet(self):
        """Waits for the kernel; returns what it says, after a comparison of the versions.

        Asks until an answer has come on iopub as well: what a kernel publishes before the
        subscription has reached it is lost.
        """
        deadline, hello, subscribed = time.monotonic() + START_TIMEOUT_S, None, False
        while time.monotonic() < deadline:
            self._send("kernel_info_request", {})
            if self._sockets["shell"].poll(1000):
                reply = self._receive("shell")
                if reply["header"]["msg_type"] == "kernel_info_reply":
                    hello = self._same_versions(reply["content"].get("tandem"))
                    subscribed = subscribed or bool(self._sockets["iopub"].poll(100))
            elif not self._call(self._manager.is_alive):
                break
            if hello is not None and subscribed:
                return hello
        raise WorkerStartFailed(
            f"The worker at {self.where} did not start. It said: {self._last_words()}"
        )

    def _same_versions(self, hello):
        if hello is None:
            raise WorkerMismatch(
                f"The kernel at {self.where} is not a worker of Tandem. Start it with "
                "`python3 -m tandem.remote.worker -f {connection_file}`."
            )
        for name, mine in versions().items():
            if hello.get(name) != mine:
                raise WorkerMismatch(
                    f"{name} is {mine} here and {hello.get(name)} at {self.where}. "
                    f"Install the same {name} on both."
                )
        return hello

    def close(self):
        """Ends the worker at once, and everything that belongs to the connection."""
        manager, self._manager = self._manager, None
        if manager is None:
            return
        self.lost = self.lost or "it was closed"
        for socket in self._sockets.values():
            socket.close(0)
        if self._bulk is not None:
            self._bulk.close()
        if hasattr(manager.provisioner, "abandon"):
            manager.provisioner.abandon()  # it may still wait for its start
        try:
            if manager.has_kernel:
                self._call(manager.shutdown_kernel, now=True)
        finally:
            launch.clean(manager)
            with contextlib.suppress(RuntimeError):  # Python ends
                self._thread.submit(_close_loop)
            self._thread.shutdown(wait=False)
            self._context.destroy(0)
            self._log.close()

    def _call(self, function, *arguments, patience=_MANAGER_TIMEOUT_S, **options):
        """Runs a method of the kernel manager on its thread, or here while Python ends.

        `patience`: the seconds to wait for it; None for no bound.
        """
        try:
            future = self._thread.submit(function, *arguments, **options)
        except RuntimeError:
            return function(*arguments, **options)
        while patience is None and not future.done():
            wait([future], 1)  # in slices: an interrupt may reach another thread
        return future.result(patience)

    def _last_words(self):
        self._log.seek(0)
        return self._log.read()[-2000:].decode(errors="replace").strip() or "nothing"

    # One request.

    def request(self, source, request, state=None, show=None, timeout=None):
        """Runs code on the worker. Returns (reply, header, frames).

        `request` are the facts for the worker; `state`, a (header, frames), goes through the bulk
        channel first. `show(message)` gets every message of iopub, `show.ask(content)` returns
        what the user typed. The returned header is None where the worker sent nothing. Raises
        WorkerLost; an interrupt of the worker is a reply, the end of it is KeyboardInterrupt.
        """
        cell = next(self._cells)
        if state is not None:
            self._bulk.send(cell, *state)
        reply = self._execute(source, {"tandem": {"cell": cell, **request}}, show, timeout)
        facts = reply.get("tandem", {})
        if facts.get("bulk") or facts.get("exception"):
            return (reply, *self._bulk.receive(cell, _TRANSFER_TIMEOUT_S))
        return reply, None, ()

    def plain_request(self, source):
        """Runs code as an ordinary kernel would, without state. Returns the reply."""
        return self._execute(source, None, None, None)

    def _execute(self, source, metadata, show, timeout):
        content = {
            "code": source,
            "silent": False,
            "store_history": False,
            "user_expressions": {},
            "allow_stdin": show is not None,
            "stop_on_error": False,  # it would drop the next cell if that came soon
        }
        sent = self._send("execute_request", content, metadata)
        return self._wait(sent, show, timeout)["content"]

    def received(self):
        """Says that the frames of the last request are no longer needed."""
        self._bulk.trim()

    def _wait(self, sent, show, timeout):
        """Returns the reply, after all messages that belong to it."""
        waiting = _Waiting(self, timeout)
        poller = zmq.Poller()
        for socket in self._sockets.values():
            poller.register(socket, zmq.POLLIN)
        got = {"reply": None, "idle": False}
        while got["reply"] is None or not got["idle"]:
            try:
                ready = dict(poller.poll(int(_ALIVE_EVERY_S * 1000)))
                for name in ("stdin", "iopub", "shell"):
                    message = self._receive(name) if self._sockets[name] in ready else None
                    if message is not None and message["parent_header"].get("msg_id") == sent:
                        self._take(name, message, show, got)
                waiting.check(bool(ready))
            except KeyboardInterrupt:
                waiting.interrupt()
        return got["reply"]

    def _take(self, name, message, show, got):
        """Handles one message of a request; `got` collects what ends the wait."""
        kind, content = message["header"]["msg_type"], message["content"]
        if name == "shell":
            got["reply"] = message
        elif name == "stdin":
            self._send("input_reply", {"value": show.ask(content)}, to="stdin")
        elif kind == "status":
            got["idle"] = got["idle"] or content["execution_state"] == "idle"
        elif show is not None:
            show(message)

    def _send(self, kind, content, metadata=None, to="shell"):
        message = self._manager.session.msg(kind, content, metadata=metadata)
        self._manager.session.send(self._sockets[to], message)
        return message["header"]["msg_id"]

    def _receive(self, name):
        """Returns the next message of a socket, or None where there is none."""
        return self._manager.session.recv(self._sockets[name], zmq.NOBLOCK)[1]

    def interrupt(self):
        """Interrupts the cell as Ctrl-C does."""
        self._call(self._manager.interrupt_kernel)

    def end(self, why):
        """Ends the worker and remembers why."""
        self.lost = why
        self.close()

    def alive(self):
        """Returns whether the worker's process runs."""
        return self.lost is None and self._call(self._manager.is_alive)


def _close_loop():
    """Closes the event loop that the kernel manager's methods have made on this thread."""
    with contextlib.suppress(RuntimeError):  # there is none
        asyncio.get_event_loop_policy().get_event_loop().close()


class _Waiting:
    """The deadlines of one wait: liveness, time limit, grace after an interrupt."""

    def __init__(self, link, timeout):
        self._link = link
        self._next_check = time.monotonic() + _ALIVE_EVERY_S
        self._limit = None if timeout is None else time.monotonic() + timeout
        self._timeout = timeout
        self._over_limit = False
        self._end = None  # when an interrupted worker is ended

    def check(self, heard):
        """Raises WorkerLost, TimeLimitExceeded or KeyboardInterrupt where waiting has no point."""
        now = time.monotonic()
        if self._limit is not None and now > self._limit and self._end is None:
            self._over_limit = True
            self.interrupt()
        if self._end is not None and now > self._end:
            self._link.end("it did not react to an interrupt")
            raise over_limit(self._timeout) if self._over_limit else KeyboardInterrupt
        if not heard and now > self._next_check:
            self._next_check = now + _ALIVE_EVERY_S
            if not self._link.alive():
                self._link.end("its process ended")
                raise WorkerLost(
                    f"The worker at {self._link.where} ended while it ran the cell. The "
                    "variables are as before the cell. The next cell starts a new worker."
                )

    def interrupt(self):
        """The first interrupt asks the worker, the second ends it."""
        if self._end is not None:
            self._link.end("it was interrupted twice")
            raise KeyboardInterrupt
        self._end = time.monotonic() + GRACE_S
        self._link.interrupt()
