"""Fixtures of the tests of remote cells: a peer process, shells and workers."""

import builtins
import multiprocessing
import os
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

PYTHON = Path(__file__).resolve().parents[2] / "python"
if str(PYTHON) not in sys.path:
    sys.path.insert(0, str(PYTHON))


def use_shadows(table, wanted):
    """Lets a side share copies of buffers, also of small ones, or lets it use digests."""
    from tandem.remote import shadow

    shadow._LEAST_BYTES = 1
    table.shadows = shadow.Shadows() if wanted else None


def _fresh_worker(shadows):
    """Returns a worker whose namespace, the one of `__main__`, is empty."""
    from tandem.remote.exchange import Worker

    namespace = vars(sys.modules["__main__"])
    namespace.clear()
    namespace.update({"__name__": "__main__", "__builtins__": builtins})
    worker = Worker(namespace)
    use_shadows(worker.table, shadows)
    return worker


def serve(descriptor):
    """The peer: installs, runs and collects cells until the pipe closes."""
    from tandem.remote.errors import CannotTravel

    pipe = Connection(descriptor)

    while True:
        try:
            message = pipe.recv()
        except EOFError:
            return
        if isinstance(message, bool):
            worker = _fresh_worker(message)
            continue
        header, frames, source, options = message
        try:
            worker.install(header, frames)
            exec(compile(source, "<cell>", "exec"), worker.table.namespace)
            reply, package = worker.collect(**options)
            pipe.send((reply, [bytes(frame) for frame in package.post()]))
            package.release()
        except CannotTravel as error:
            pipe.send((worker.dirty(), error))
        except Exception as error:
            pipe.send((worker.dirty(), RuntimeError(f"{type(error).__name__}: {error}")))


@pytest.fixture(scope="session")
def peer_pipe():
    """The connection to a process that serves all peers, one after the other."""
    pipe, theirs = multiprocessing.Pipe()
    here = str(Path(__file__).parent)
    process = subprocess.Popen(
        [sys.executable, "-c", f"import remote_fixtures as r; r.serve({theirs.fileno()})"],
        env={**os.environ, "PYTHONPATH": here},
        pass_fds=[theirs.fileno()],
    )
    theirs.close()
    yield pipe
    pipe.close()
    process.wait(30)


class Peer:
    """Runs cells in another process on state that travels; `namespace` is the notebook's."""

    def __init__(self, pipe, shadows=False):
        from tandem.remote.exchange import Notebook

        self.namespace = {"__name__": "__main__"}
        self.notebook = Notebook(self.namespace)
        self._pipe = pipe
        use_shadows(self.notebook.table, shadows)
        self._pipe.send(shadows)
        self.sent = None
        self.returned = None

    def run(self, source, names=None, **options):
        """Runs a cell remotely. Raises what it raised; then nothing changed here."""
        from tandem.remote.names import cell_names, wanted

        names = cell_names(source).reads if names is None else names
        package = self.notebook.prepare(wanted(names, self.namespace))
        self.sent = package
        header, frames = self.notebook.header(package), package.post()
        self._pipe.send((header, [bytes(frame) for frame in frames], source, options))
        package.release()
        if not self._pipe.poll(60):
            raise TimeoutError("the peer does not answer")
        reply, frames = self._pipe.recv()
        if isinstance(frames, Exception):
            self.notebook.failed(reply)
            raise frames
        self.returned = reply
        self.notebook.accept(reply, frames)


@pytest.fixture(params=[False, True], ids=["digests", "shadows"])
def peer(peer_pipe, request):
    """A peer whose notebook has an empty namespace."""
    return Peer(peer_pipe, request.param)


class RemoteShell:
    """An IPython shell whose cells run on a worker."""

    def __init__(self, where="local-worker", **options):
        from IPython.core.interactiveshell import InteractiveShell

        self.shell = InteractiveShell()
        self.space = self.shell.user_ns
        self.where = where
        self.options = {"plain": True, **options}

    def local(self, source):
        """Runs a cell in the notebook."""
        self.shell.run_cell(source).raise_error()

    def run(self, source, **options):
        """Runs a cell on the worker; returns its result."""
        from tandem.remote import run_cell

        return run_cell(self.shell, source, self.where, {**self.options, **options})

    def run_and_act(self, source, begun, act):
        """Runs a cell that does not end by itself, and act() once it has made the file `begun`; returns its result."""
        from harness import wait_until

        def when_it_runs():
            wait_until(begun.exists, None, "the cell runs")
            act()

        thread = threading.Thread(target=when_it_runs)
        thread.start()
        result = self.run(f"{source}\nopen({str(begun)!r}, 'w').close()\nwhile True: pass")
        thread.join()
        return result

    def ok(self, source, **options):
        """Runs a cell on the worker that has to succeed; returns its result."""
        result = self.run(source, **options)
        result.raise_error()
        return result

    def worker_pid(self):
        """Returns the process id of the worker."""
        from tandem.remote.session import session

        return session(self.shell, self.where).link.hello["pid"]

    def close(self):
        from tandem.remote import stop

        stop(self.shell)
        self.shell.reset(new_session=False)


@pytest.fixture(scope="module")
def worker_shell():
    """A shell with a worker that the tests of a module share."""
    shell = RemoteShell()
    yield shell
    shell.close()


@pytest.fixture
def remote(worker_shell):
    """The shared shell, with an empty namespace."""
    worker_shell.shell.reset(new_session=False)
    return worker_shell


@pytest.fixture
def fresh():
    """A shell with a worker of its own, for tests that end it."""
    shell = RemoteShell()
    yield shell
    shell.close()
