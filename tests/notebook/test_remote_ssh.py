"""Remote cells over OpenSSH, against a real sshd on the loopback."""

import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys

import pytest

from harness import wait_until
from remote_fixtures import PYTHON, RemoteShell
from tandem.errors import TimeLimitExceeded
from tandem.remote.errors import WorkerLost, WorkerStartFailed
from tandem.remote.session import session

SSHD = shutil.which("sshd", path="/usr/sbin:" + os.environ.get("PATH", ""))
pytestmark = pytest.mark.skipif(
    SSHD is None or shutil.which("ssh") is None, reason="needs openssh-server and openssh-client"
)
np = pytest.importorskip("numpy")


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """A host `tandem-test` in an ssh configuration of its own."""
    folder = tmp_path_factory.mktemp("ssh")
    for key in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True
        )
    shutil.copy(folder / "user.pub", folder / "authorized")
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    (folder / "sshd").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nStrictModes no\n"
        f"AuthorizedKeysFile {folder}/authorized\nPasswordAuthentication no\nUsePAM no\n"
        f"PermitRootLogin prohibit-password\nPidFile none\nSetEnv PYTHONPATH={PYTHON}\n"
    )
    (folder / "config").write_text(
        f"Host tandem-test\n HostName 127.0.0.1\n Port {port}\n User {getpass.getuser()}\n"
        f" IdentityFile {folder}/user\n IdentitiesOnly yes\n StrictHostKeyChecking accept-new\n"
        f" UserKnownHostsFile {folder}/known\n"
    )
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)
    log = open(folder / "log", "w")
    server = subprocess.Popen([SSHD, "-D", "-e", "-f", folder / "sshd"], stderr=log)
    wait_until(lambda: listens(port), server, f"sshd listens ({folder}/log)")
    before = os.environ.get("TANDEM_SSH_CONFIG")
    os.environ["TANDEM_SSH_CONFIG"] = str(folder / "config")
    yield f"ssh://tandem-test{sys.executable}"
    os.environ.pop("TANDEM_SSH_CONFIG")
    if before is not None:
        os.environ["TANDEM_SSH_CONFIG"] = before
    server.terminate()
    server.wait(10)
    log.close()


@pytest.fixture
def remote(host):
    shell = RemoteShell(host)
    yield shell
    shell.close()


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0] == "Z"


def listening(pid):
    """Returns the addresses on which a process listens, as /proc/net/tcp writes them."""
    sockets = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    with open(f"/proc/{pid}/net/tcp") as four, open(f"/proc/{pid}/net/tcp6") as six:
        rows = [line.split() for line in four.readlines()[1:] + six.readlines()[1:]]
    return [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]


def test_state_travels_and_nothing_listens_on_a_network(remote, capsys):
    remote.local("import numpy as np\na = np.arange(500_000.0); v = a[::2]; l = [a]")
    a = remote.space["a"]
    remote.ok("import os\nv += 1; l.append(a[:3]); pid = os.getpid(); print('there')")
    assert remote.space["a"] is a and a[0] == 1 and a[1] == 1 and a[2] == 3
    assert np.shares_memory(remote.space["l"][1], a)
    assert "there" in capsys.readouterr().out
    ssh = session(remote.shell, remote.where).link._manager.provisioner.pid
    assert listening(ssh) == []
    # ipykernel has a socket on the loopback, for the output of its child processes.
    assert {address.split(":")[0] for address in listening(remote.space["pid"])} <= {"0100007F"}


def test_errors_limits_and_the_end_of_the_worker(remote):
    remote.local("l = [1]")
    error = remote.run("l.append(2); {}['k']").error_in_exec
    assert isinstance(error, KeyError) and remote.space["l"] == [1]
    error = remote.run("while True: pass", timeout=0.3).error_in_exec
    assert isinstance(error, TimeLimitExceeded)
    remote.ok("l.append(3)")
    assert remote.space["l"] == [1, 3]
    pid = remote.worker_pid()
    remote.close()
    wait_until(lambda: gone(pid), None, "the worker ends")


def test_a_cut_connection_changes_nothing_and_ends_the_worker(remote, tmp_path):
    remote.local("l = [1]")
    remote.ok("l.append(2)")
    pid = remote.worker_pid()
    ssh = session(remote.shell, remote.where).link._manager.provisioner.pid
    cut = lambda: os.kill(ssh, signal.SIGKILL)
    error = remote.run_and_act("l.append(3)", tmp_path / "begun", cut).error_before_exec
    assert isinstance(error, WorkerLost) and remote.space["l"] == [1, 2]
    wait_until(lambda: gone(pid), None, "the worker ends")
    remote.ok("l.append(4)")
    assert remote.space["l"] == [1, 2, 4] and remote.worker_pid() != pid


def test_a_host_that_cannot_be_reached_is_an_error_with_sshs_words(host):
    shell = RemoteShell("ssh://no-such-host.invalid")
    error = shell.run("x = 1").error_before_exec
    assert isinstance(error, WorkerStartFailed) and "no-such-host.invalid" in str(error)
    odd = RemoteShell("ssh://-oProxyCommand=x").run("x = 1").error_before_exec
    assert isinstance(odd, WorkerStartFailed) and "no name of a host" in str(odd)
