"""Starts a worker's kernel by a kernel provisioner, and says how to reach it.

`local-worker` uses Jupyter's own local provisioner, over sockets in a private directory.
`ssh://HOST` and `ssh://HOST/PATH/OF/python3` use `SshProvisioner`, `slurm:PARTITION` and the like
`SlurmProvisioner`. Any other name is a provisioner that others installed.
"""

import os
import re
import shutil
import sys
import tempfile

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import KernelManager

from ..command import CommandMissing, package_environment, tandem_command
from ..errors import InvalidUse
from ..slurm import is_place, options_of
from .errors import WorkerStartFailed

LOCAL = "local-worker"
_RUN = ("run", "--quiet", "--")
_MODULE = "tandem.remote.worker"


class _Specs(KernelSpecManager):
    """Knows one kernel: the worker."""

    worker = None

    def get_kernel_spec(self, kernel_name):
        """Returns the specification of the worker's kernel."""
        return self.worker


def manager(where, plain=False):
    """Returns a `KernelManager` that starts a worker at `where`.

    `plain` starts the kernel without `tandem run`: for cells that use no GPU. Raises
    WorkerStartFailed where Tandem's command is missing.
    """
    specs = _Specs()
    specs.worker = KernelSpec(display_name="Tandem worker", language="python")
    made = KernelManager(kernel_name="tandem-worker", kernel_spec_manager=specs)
    if where.startswith("ssh://"):
        host, slash, python = where[len("ssh://") :].partition("/")
        specs.worker.argv = _argv([] if plain else ["tandem", *_RUN], slash + python or "python3")
        specs.worker.interrupt_mode = "message"
        _use_private_sockets(made)
        made.provisioner = _ssh(made, host)
        return made
    if is_place(where):
        # Slurm's plugin gives the job its GPU. The same Python is on all nodes.
        specs.worker.argv = [sys.executable, "-m", "tandem.remote.node"]
        specs.worker.interrupt_mode = "message"
        made.provisioner = _slurm(made, where)
        return made
    specs.worker.argv = _argv(_prefix(plain), sys.executable)
    if where == LOCAL:
        _use_private_sockets(made)
    else:
        specs.worker.metadata = {"kernel_provisioner": {"provisioner_name": where}}
    return made


def _use_private_sockets(made):
    """Lets the kernel's sockets lie in a directory that only the user can enter."""
    directory = tempfile.mkdtemp(prefix="tandem-")
    made.transport, made.ip = "ipc", f"{directory}/kernel"
    made.connection_file = f"{directory}/connection.json"


def _ssh(made, host):
    from .ssh import SshProvisioner

    if not re.fullmatch(r"[\w.@:\[\]-]+", host) or host.startswith("-"):
        raise WorkerStartFailed(f"ssh://{host}: this is no name of a host. Use ssh://HOST.")
    provisioner = SshProvisioner(
        kernel_id="tandem-worker", kernel_spec=made.kernel_spec, parent=made, host=host
    )
    return provisioner


def _slurm(made, where):
    from .slurm import SlurmProvisioner

    try:
        arguments = options_of(where)
    except InvalidUse as error:
        raise WorkerStartFailed(str(error)) from None
    return SlurmProvisioner(
        kernel_id="tandem-worker",
        kernel_spec=made.kernel_spec,
        parent=made,
        arguments=arguments,
    )


def environment():
    """Returns the environment of a local worker."""
    # The variable silences a warning of ipykernel's debugger.
    return package_environment(PYDEVD_DISABLE_FILE_VALIDATION="1")


def clean(made):
    """Removes the directory of the sockets of a local worker that has ended."""
    if made.transport == "ipc":
        shutil.rmtree(os.path.dirname(made.ip), ignore_errors=True)


def _argv(prefix, python):
    return [*prefix, python, "-m", _MODULE, "-f", "{connection_file}"]


def _prefix(plain):
    if plain:
        return []
    try:
        return [tandem_command(), *_RUN]
    except CommandMissing as error:
        raise WorkerStartFailed(str(error)) from None
