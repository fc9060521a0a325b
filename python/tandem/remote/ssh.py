"""A kernel provisioner that starts a worker on another host with OpenSSH.

Both ends use Unix sockets in private directories, and ssh forwards them: nothing listens on a
network. Host names, keys and jumps are those of the user's ssh configuration; TANDEM_SSH_CONFIG
names another file. The connection file goes through ssh's standard input, so the key appears in no
command line. The worker ends when that input does: a cut connection leaves no worker behind.
"""

import os
import shlex
import subprocess
import uuid

from jupyter_client.provisioning import KernelProvisionerBase, LocalProvisioner
from traitlets import Unicode

from . import first_line

_OPTIONS = {
    "BatchMode": "yes",
    "ExitOnForwardFailure": "yes",
    "StreamLocalBindUnlink": "yes",
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "3",
    "ControlPath": "none",
    "LogLevel": "ERROR",
}
_PORTS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")


class SshProvisioner(LocalProvisioner):
    """Starts `ssh HOST`; the process that the kernel manager watches is ssh itself."""

    host = Unicode(config=True, help="the host, as `ssh` knows it")
    same_host = False

    async def pre_launch(self, **options):
        """Prepares the sockets and the command. Returns the options of `launch_kernel`."""
        manager = self.parent
        self._here = os.path.dirname(manager.ip)
        self._there = f"/tmp/tandem-{uuid.uuid4().hex}"
        manager.write_connection_file()
        self.connection_info = manager.get_connection_info()
        options.pop("extra_arguments", None)
        return await KernelProvisionerBase.pre_launch(self, cmd=self._command(), **options)

    async def launch_kernel(self, cmd, **options):
        """Starts ssh and hands it the connection file. Returns the connection's facts."""
        options["stdin"] = subprocess.PIPE
        info = await super().launch_kernel(cmd, **options)
        first_line.send(self.process, self._remote_connection())
        return info

    def tunnel(self, _endpoint):
        """Returns the local endpoint of the bulk channel."""
        return f"ipc://{self._here}/bulk"

    def _remote_connection(self):
        info = dict(self.connection_info)
        info["ip"] = f"{self._there}/kernel"
        info["key"] = info["key"].decode() if isinstance(info["key"], bytes) else info["key"]
        return info

    def _command(self):
        command = ["ssh", "-T"]
        if os.environ.get("TANDEM_SSH_CONFIG"):
            command += ["-F", os.environ["TANDEM_SSH_CONFIG"]]
        for name, value in _OPTIONS.items():
            command += ["-o", f"{name}={value}"]
        sockets = [f"kernel-{self.connection_info[port]}" for port in _PORTS] + ["bulk"]
        for socket in sockets:
            command += ["-L", f"{self._here}/{socket}:{self._there}/{socket}"]
        return [*command, self.host, "sh", "-c", shlex.quote(self._script())]

    def _script(self):
        there = self._there
        run = [a.format(connection_file=f"{there}/connection.json") for a in self.kernel_spec.argv]
        return (
            f"umask 077; mkdir {there} || exit; "
            f"IFS= read -r line; printf %s \"$line\" > {there}/connection.json; "
            f"TANDEM_WORKER_REMOTE=1 {shlex.join(run)}; "
            f"status=$?; rm -rf {there}; exit $status"
        )
