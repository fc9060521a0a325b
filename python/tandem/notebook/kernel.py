"""The kernel of a notebook: found, started under `tandem run`, interrupted, ended.

The kernel's process ends with this process, also after `kill -9`: Linux sends the signal.
"""

import contextlib
import ctypes
import io
import os
import re
import shutil
import signal
import subprocess
from dataclasses import dataclass
from typing import Optional

from ..command import CommandMissing, package_environment, run_name, tandem_command
from .errors import BadInput

COMMAND = "TANDEM_COMMAND"  # names the program `tandem`
_SHIM = "libtandem.so"
_PR_SET_PDEATHSIG = 1
_DEBUGGER = re.compile(r"^\d+\.\d+s - .*\n?", re.MULTILINE)
_libc = ctypes.CDLL(None)


@dataclass
class Launch:
    """How the kernel gets its GPU: the options of `tandem run`."""

    unshared: bool = False
    tandem: Optional[str] = None
    of_class: str = "batch"
    name: Optional[str] = None
    memory: Optional[str] = None
    gpu: Optional[str] = None
    quiet: bool = False


def find_tandem(asked=None):
    """Returns the path of the program `tandem`. Raises BadInput.

    Looks at `asked`, then where `tandem_command` does.
    """
    for name in (asked, os.environ.get(COMMAND)):
        if name:
            found = shutil.which(name)
            if found is None:
                raise BadInput(f"{name} is not a program that can be executed")
            return os.path.abspath(found)
    try:
        return tandem_command()
    except CommandMissing as error:
        raise BadInput(f"{error}; or name it by --tandem, or run with --unshared") from None


def tandem_run(launch, name):
    """Returns the words that start a program on a shared GPU; none where that is not wanted.

    Inside of another run its name, class and limit hold. Raises BadInput.
    """
    if launch.unshared:
        return []
    words = [find_tandem(launch.tandem), "run"]
    if launch.quiet:
        words.append("--quiet")
    if launch.gpu:
        words += ["--gpu", launch.gpu]
    if not os.environ.get("TANDEM_RUN"):
        words += ["--class", launch.of_class, "--name", launch.name or run_name(name)]
        if launch.memory:
            words += ["--memory", launch.memory]
    return [*words, "--"]


def find_spec(notebook, name=None):
    """Returns the specification of the notebook's kernel. Raises BadInput."""
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    name = name or notebook.metadata.get("kernelspec", {}).get("name") or "python3"
    specs = KernelSpecManager()
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # of the debugger that ipykernel loads
            spec = specs.get_kernel_spec(name)
    except NoSuchKernel:
        there = ", ".join(sorted(specs.find_kernel_specs())) or "none"
        raise BadInput(
            f"the kernel {name!r} is not installed; installed are: {there}. "
            "--kernel NAME chooses another"
        ) from None
    spec.name = name
    return spec


def environment(leave_run=False, **variables):
    """Returns the environment of a kernel, in which `import tandem` finds this package.

    `leave_run`: what it starts does not belong to the `tandem run` around this process.
    """
    made = package_environment(**variables)
    if leave_run:
        made.pop("TANDEM_RUN", None)
        made.pop("TANDEM_NAME", None)
        preloaded = re.split("[ :]+", made.pop("LD_PRELOAD", ""))
        others = [path for path in preloaded if path and os.path.basename(path) != _SHIM]
        if others:
            made["LD_PRELOAD"] = " ".join(others)
    return made


class Kernel:
    """One kernel. Start it once; `close` ends it."""

    def __init__(self, prepared):
        from jupyter_client.manager import AsyncKernelManager

        command, spec = prepared.command, prepared.kernel_spec

        class Manager(AsyncKernelManager):
            """Starts the kernel by `tandem run`."""

            def format_kernel_cmd(self, extra_arguments=None):
                """Returns the kernel's command."""
                return command + super().format_kernel_cmd(extra_arguments)

        self._guarded = bool(command)
        self._spec = spec
        self._process = None
        self.manager = Manager(kernel_name=spec.name)
        self.said = _Pipe()

    @property
    def pid(self):
        """The process: of `tandem run`, where it started the kernel."""
        return self._process.pid if self._process else None

    async def start(self, client, environment, cwd):
        """Starts the kernel and connects `client`, an nbclient. Raises RuntimeError."""
        try:
            await client.async_start_new_kernel(
                env=environment,
                cwd=cwd,
                stdout=self.said.writer,
                stderr=self.said.writer,
                preexec_fn=_end_with_parent,
            )
        finally:
            self.said.close_writer()
        self._process = self.manager.provisioner.process
        await client.async_start_new_kernel_client()

    async def interrupt(self):
        """Interrupts the running cell.

        Under `tandem run` only the guard gets the signal. It passes it on, so that the kernel,
        of the same process group, sees one.
        """
        if self._spec.interrupt_mode == "message":
            await self.manager.interrupt_kernel()
        elif self.running:
            signal_process = os.kill if self._guarded else os.killpg
            signal_process(self.pid, signal.SIGINT)

    def kill(self):
        """Ends the kernel at once."""
        if self.running:
            os.killpg(self.pid, signal.SIGKILL)

    async def close(self, client):
        """Ends the kernel after its exit handlers, and its connection."""
        if client.kc is None:
            self.kill()
        else:
            if self.running:
                await self.manager.shutdown_kernel()
            client.kc.stop_channels()
        await self.manager.cleanup_resources()

    @property
    def running(self):
        """Whether the kernel's process runs."""
        return self._process is not None and self._process.poll() is None

    def describe_end(self):
        """Returns how the kernel's process ended, for a message."""
        try:
            status = self._process.wait(timeout=5) if self._process else None
        except subprocess.TimeoutExpired:
            return "it does not answer"
        if status is None:
            return "it did not start"
        number = -status if status < 0 else status - 128
        if status < 0 or status > 128:
            name = signal.Signals(number).name if number in list(signal.Signals) else number
            hint = "; often host memory ran out" if number == signal.SIGKILL else ""
            return f"killed by {name}{hint}"
        return f"exit status {status}"


class _Pipe:
    """What the kernel's processes write themselves, past the notebook.

    Without what the debugger, which ipykernel loads, writes about itself.
    """

    def __init__(self):
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)

    def read(self):
        """Returns the text that came since; None at the end. Raises BlockingIOError."""
        data = os.read(self.reader, 65536)
        return _DEBUGGER.sub("", data.decode(errors="replace")) if data else None

    def close_writer(self):
        """Leaves the kernel as the only writer."""
        if self.writer is not None:
            os.close(self.writer)
            self.writer = None

    def close(self):
        """Closes both ends."""
        self.close_writer()
        os.close(self.reader)


def _end_with_parent():
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
