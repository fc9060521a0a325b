"""A kernel provisioner that starts a worker as a job of Slurm, by `srun`.

The connection's key goes through srun's standard input, and the worker's address and ports come
back on its standard output. Requests are signed with the key, not encrypted, as those of any kernel
of Jupyter that is reached over TCP. The worker ends when srun does.
"""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections import deque

from jupyter_client.provisioning import KernelProvisionerBase, LocalProvisioner
from traitlets import List

from . import first_line
from .errors import WorkerStartFailed
from .node import MARK

_CANCEL_TIMEOUT_S = 10
_QUEUED = b"queued and waiting"


class SlurmProvisioner(LocalProvisioner):
    """Starts `srun`; the process that the kernel manager watches is srun itself."""

    arguments = List(help="srun's options")
    job = None  # its number, once it runs
    same_host = False
    start_timeout_s = None  # jobs wait in a queue

    async def pre_launch(self, **options):
        """Prepares the command. Returns the options of `launch_kernel`."""
        options.pop("extra_arguments", None)
        command = ["srun", "--ntasks=1", "--nodes=1", "--job-name=tandem-worker", *self.arguments]
        command += ["--unbuffered", *self.kernel_spec.argv]
        return await KernelProvisionerBase.pre_launch(self, cmd=command, **options)

    async def launch_kernel(self, cmd, **options):
        """Starts srun and waits for the job. Returns the connection's facts."""
        log, self._errors = options["stdout"], deque(maxlen=20)
        options.update(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        # A job of its own, also where the notebook runs in one; the node has its own daemon.
        self._environment = options["env"] = {
            name: value
            for name, value in options["env"].items()
            if name == "SLURM_CONF" or not name.startswith(("SLURM_", "TANDEM_", "LD_"))
        }
        try:
            await super().launch_kernel(cmd, **options)
        except FileNotFoundError:
            raise WorkerStartFailed("srun is not in PATH: this machine has no Slurm") from None
        session = self.parent.session
        key = {"key": session.key.decode(), "signature_scheme": session.signature_scheme}
        first_line.send(self.process, key)
        errors = threading.Thread(target=self._copy_errors, args=(log,), daemon=True)
        errors.start()
        loop = asyncio.get_running_loop()
        facts = await loop.run_in_executor(None, self._facts, log)
        if facts is None:
            errors.join()
            raise WorkerStartFailed(self._said() or "srun ended without a word")
        self.job = facts.pop("job")
        threading.Thread(target=self._copy, args=(self.process.stdout, log), daemon=True).start()
        self.connection_info = {**key, **facts, "key": session.key}
        return self.connection_info

    def _said(self):
        return b"".join(self._errors).decode(errors="replace").strip()

    def abandon(self):
        """Ends the job, also one that waits in the queue. From any thread."""
        if self.process is None:
            return
        if self.job is not None:  # srun may be gone, and its job not
            words = ["scancel", "--signal=KILL", self.job]
            subprocess.run(words, env=self._environment, stderr=subprocess.DEVNULL)
        self.process.terminate()
        try:
            self.process.wait(_CANCEL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def _facts(self, log):
        for line in self.process.stdout:
            if line.startswith(MARK.encode()):
                return json.loads(line[len(MARK) :])
            self._write(log, line)
        return None

    def _copy_errors(self, log):
        for line in self.process.stderr:
            if _QUEUED in line:
                print(line.decode(errors="replace").strip(), file=sys.stderr, flush=True)
            self._errors.append(line)
            self._write(log, line)

    def _copy(self, pipe, log):
        for line in pipe:
            self._write(log, line)

    @staticmethod
    def _write(log, line):
        try:
            os.write(log.fileno(), line)
        except ValueError:
            pass  # the link is closed
