"""The worker: an ipykernel that installs a cell's state before it runs, and collects it after.

`python3 -m tandem.remote.worker -f CONNECTION_FILE` starts it, as a kernel provisioner does.
An `execute_request` whose metadata has the key `tandem` is a remote cell; its state comes and goes
through the bulk channel. All other requests are those of an ordinary kernel.
"""

import os
import threading
import traceback

import zmq
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp

from ..parent import end_with
from .bulk import Channel
from .errors import CannotTravel
from .exchange import Worker
from .shadow import Shadows
from .snapshot import Snapshot
from .versions import versions

_STATE_TIMEOUT_S = 600
_REMOTE = "TANDEM_WORKER_REMOTE" in os.environ  # ssh started it; its input is the connection


class WorkerKernel(IPythonKernel):
    """An IPython kernel with a bulk channel."""

    def __init__(self, **options):
        super().__init__(**options)
        app = self.parent
        local = app.transport == "ipc"
        if local:
            endpoint = f"ipc://{os.path.dirname(app.ip)}/bulk"
        else:
            endpoint = f"tcp://{app.ip}:{os.environ.get('TANDEM_BULK_PORT', '*')}"
        key = self.session.key
        shared = local and not _REMOTE
        self._bulk = Channel(zmq.Context.instance(), endpoint, key, server=True, shared=shared)
        self._state = Worker(self.shell.user_ns)
        self._state.table.shadows = Shadows() if shared else None

    @property
    def kernel_info(self):
        """Returns Jupyter's description of the kernel, with the worker's versions."""
        info = super().kernel_info
        info["tandem"] = {**versions(), "bulk": self._bulk.endpoint, "pid": os.getpid()}
        return info

    async def do_execute(self, code, silent, *arguments, **options):
        """Runs a cell; for a remote one, between the transfers of its state."""
        request = self.get_parent().get("metadata", {}).get("tandem")
        if request is None:
            return await super().do_execute(code, silent, *arguments, **options)
        self._bulk.trim()
        try:
            header, frames = self._bulk.receive(request["cell"], _STATE_TIMEOUT_S)
            self._state.install(header, frames)
            del header, frames
        except BaseException as error:  # KeyboardInterrupt as well
            return self._not_run(error)
        if "fetch" in request:
            return self._fetch(request)
        reply = await super().do_execute(code, silent, *arguments, **options)
        try:
            if reply["status"] == "ok":
                return self._collect(request, reply)
            return self._failed(request, reply)
        except BaseException as error:
            return self._not_run(error)

    def _collect(self, request, reply):
        """Sends what the cell bound or changed."""
        try:
            result, package = self._state.collect(
                request["outputs"], request["keep"], request["limit"]
            )
        except CannotTravel as error:
            return self._error(error, {"dirty": self._state.dirty()})
        self._bulk.send(request["cell"], result, package.post())
        package.release()
        reply["tandem"] = {"bulk": True}
        return reply

    def _failed(self, request, reply):
        """Reports what a failed cell had changed, and sends its exception where it can travel."""
        dirty = self._state.dirty()
        reply["tandem"] = {"dirty": dirty, "exception": False}
        error = getattr(self.shell, "tandem_error", None)
        snapshot = Snapshot(self._state.table)
        snapshot.add_root("exception", error)
        try:
            package = snapshot.run()
        except CannotTravel:
            self._state.table.drop(snapshot.new())
            return reply
        new = set(snapshot.new())
        self._state.table.drop(new)
        if error is not None and all(record.number in new for record in package.records):
            result = {"records": package.records, "roots": package.roots}
            self._bulk.send(request["cell"], result, package.post())
            reply["tandem"]["exception"] = True
        package.release()
        return reply

    def _fetch(self, request):
        try:
            result, package = self._state.fetch(request["fetch"])
        except Exception as error:
            return self._error(error, {"dirty": []})
        self._bulk.send(request["cell"], result, package.post())
        package.release()
        return self._reply("ok", {"bulk": True})

    def _not_run(self, error):
        """The reply where the state is unknown: the notebook sends everything again."""
        self._state.table.forget()
        return self._error(error, {"dirty": None})

    def _error(self, error, facts):
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        reply = self._reply("error", {**facts, "own": True, "exception": False})
        reply.update(ename=type(error).__name__, evalue=str(error), traceback=lines)
        if isinstance(error, CannotTravel):
            reply["tandem"]["path"] = [error.path, error.reason, error.advice]
        return reply

    def _reply(self, status, facts):
        return {
            "status": status,
            "execution_count": self.execution_count,
            "user_expressions": {},
            "payload": [],
            "tandem": facts,
        }


def _remember_error(shell):
    """Keeps the exception of the last cell, which Jupyter's reply has only as text."""

    def before(*_):
        shell.tandem_error = None

    def after(result):
        shell.tandem_error = result.error_in_exec or result.error_before_exec if result else None

    shell.events.register("pre_run_cell", before)
    shell.events.register("post_run_cell", after)


def _end_with_input():
    """Ends this process when its standard input does."""
    while os.read(0, 4096):
        pass
    os._exit(1)


def main():
    """Starts the worker's kernel and serves until it is told to stop."""
    if _REMOTE:
        threading.Thread(target=_end_with_input, daemon=True).start()
    else:
        end_with(os.environ.get("JPY_PARENT_PID"))
    app = IPKernelApp.instance(kernel_class=WorkerKernel)
    app.initialize()
    app.shell.history_manager.enabled = False
    _remember_error(app.shell)
    app.start()


if __name__ == "__main__":
    main()
