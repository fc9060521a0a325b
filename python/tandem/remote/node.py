"""The worker on a node of a cluster: `python3 -m tandem.remote.node`.

It reads the key of the connection from standard input, chooses free ports at the address by which
the node reaches the notebook's machine, tells both in one line of standard output, and serves. It
ends when its input does.
"""

import json
import os
import socket
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

MARK = "TANDEM-WORKER "
PORTS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")


def own_address(peer):
    """Returns this machine's address on the way to `peer`, a host; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, 9))
        return probe.getsockname()[0]


def free_ports(address):
    """Returns a port for each of PORTS."""
    with ExitStack() as stack:
        probes = {name: stack.enter_context(socket.socket()) for name in PORTS}
        for probe in probes.values():
            probe.bind((address, 0))
        return {name: probe.getsockname()[1] for name, probe in probes.items()}


def main():
    """Starts the worker's kernel and serves until the input ends."""
    told = json.loads(sys.stdin.readline())
    address = own_address(os.environ.get("SLURM_SRUN_COMM_HOST", "127.0.0.1"))
    facts = {"transport": "tcp", "ip": address, **free_ports(address)}
    with tempfile.TemporaryDirectory(prefix="tandem-") as folder:
        file = Path(folder) / "connection.json"
        file.write_text(json.dumps({**told, **facts}))
        print(MARK + json.dumps({**facts, "job": os.environ.get("SLURM_JOB_ID")}), flush=True)
        os.environ["TANDEM_WORKER_REMOTE"] = "1"
        sys.argv = [sys.argv[0], "-f", str(file)]
        from .worker import main as serve

        serve()


if __name__ == "__main__":
    main()
