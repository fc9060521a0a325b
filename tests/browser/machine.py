"""A machine with two users and a JupyterHub, as docs/notebooks.md tells its administrator to set it up.

It is this machine seen from mount and process namespaces of its own: /usr/local, /home, /run, /var/log and
/etc/jupyterhub are empty folders of the test, and /etc/passwd has two more users. All its processes
end with the first one.
"""

import crypt
import json
import os
import shutil
import signal
import socket
import subprocess
import urllib.request
from pathlib import Path

from harness import BUILD, wait_until

USERS = ("anna", "ben")
PASSWORD = "of the test"
FIRST_UID = 61184  # of the range that Debian leaves alone
CARD = {
    "TANDEM_GPU": "soft",
    "TANDEM_SOFT_DIR": "/run/soft",
    "TANDEM_SOFT_SHARED": "1",
    "TANDEM_SOFT_VRAM": "256M",
    "TANDEM_SOFT_CONTEXT": "8M",
    "TANDEM_SOFT_PCIE": "8GB/s",
}
MOUNTS = ("usr/local", "home", "run", "var/log", "var/lib/jupyterhub", "etc/jupyterhub")
FILES = ("etc/passwd", "etc/group", "etc/shadow")
UNSHARE = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--mount-proc", "--kill-child")
FIRST = """
set -eu
for name in {names}; do mount --bind {root}/$name /$name; done
echo ready
read -r _ || true
"""
HUB_CONFIG = """
load_subconfig("/etc/jupyterhub/tandem_hub.py")
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub_port}"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy_port}"
c.PAMAuthenticator.open_sessions = False
c.Spawner.environment.update({card})
"""


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def can_be_made():
    return os.geteuid() == 0 and subprocess.run([*UNSHARE, "true"], check=False).returncode == 0


def child_of(process):
    """The process that `unshare` or `nsenter` started."""
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())


class Machine:
    def __init__(self, root):
        self.root = root
        root.chmod(0o755)
        self._make_files()
        script = FIRST.format(names=" ".join([*MOUNTS, *FILES]), root=root)
        self._first = subprocess.Popen(
            [*UNSHARE, "bash", "-c", script],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._first.stdout.readline() == "ready\n"
        self._pid = child_of(self._first)
        self._hub = None

    def _make_files(self):
        for name in MOUNTS:
            (self.root / name).mkdir(parents=True)
        for name in FILES:
            shutil.copy(f"/{name}", self.root / name)
        (self.root / "run" / "soft").mkdir()
        with (self.root / "etc/passwd").open("a") as passwd, (self.root / "etc/shadow").open("a") as shadow:
            for uid, user in enumerate(USERS, FIRST_UID):
                passwd.write(f"{user}:x:{uid}:{uid}::/home/{user}:/bin/bash\n")
                shadow.write(f"{user}:{crypt.crypt(PASSWORD)}:19000:0:99999:7:::\n")
                home = self.root / "home" / user
                home.mkdir(mode=0o700)
                os.chown(home, uid, uid)
        install = ["cmake", "--install", BUILD, "--prefix", self.root / "usr/local"]
        subprocess.run(install, check=True, stdout=subprocess.DEVNULL)

    def argv(self, *words):
        return ["nsenter", f"--target={self._pid}", "--mount", "--pid", "--wd=/", *map(str, words)]

    @property
    def env(self):
        """Root's environment, without Tandem's variables for tests and other users' Python."""
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        # The proxy needs Debian's modules, where only Debian's build of nodejs looks by itself.
        modules = "/usr/share/nodejs:/usr/lib/nodejs"
        return {"PATH": path, "HOME": "/root", "LC_ALL": "C.UTF-8", "NODE_PATH": modules, **CARD}

    def run(self, *words):
        """A command of root's; its standard output."""
        done = subprocess.run(self.argv(*words), env=self.env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def sessions(self):
        """By user: the sessions on the card."""
        return {each["uid"]: each for each in json.loads(self.run("tandem", "ps", "--json"))["sessions"]}

    def session(self, user):
        return self.sessions().get(FIRST_UID + USERS.index(user))

    def write(self, user, name, text):
        """A file in the user's home."""
        path = self.root / "home" / user / name
        path.write_text(text)
        os.chown(path, FIRST_UID + USERS.index(user), FIRST_UID + USERS.index(user))

    def remove(self, user, name):
        (self.root / "home" / user / name).unlink()

    def start_hub(self, memory, idle, changes):
        """Returns the Hub's address. `changes`: of the printed configuration, old text to new."""
        port, hub_port, proxy_port = free_ports(3)
        folder = self.root / "etc/jupyterhub"
        (folder / "tandem_hub.py").unlink(missing_ok=True)
        self.run("tandem", "jupyter", "hub", "--memory", memory, "--idle", idle,
                 "--output", "/etc/jupyterhub/tandem_hub.py")  # fmt: skip
        for old, new in changes.items():
            text = (folder / "tandem_hub.py").read_text()
            assert old in text
            (folder / "tandem_hub.py").write_text(text.replace(old, new))
        text = HUB_CONFIG.format(port=port, hub_port=hub_port, proxy_port=proxy_port, card=CARD)
        (folder / "jupyterhub_config.py").write_text(text)
        hub = ["jupyterhub", "-f", "/etc/jupyterhub/jupyterhub_config.py"]
        hub = ["sh", "-c", 'cd /var/lib/jupyterhub && exec "$@"', "sh", *hub]
        with (self.root / "var/log/jupyterhub.log").open("a") as log:
            self._hub = subprocess.Popen(self.argv(*hub), env=self.env, stdout=log, stderr=log)
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: self._answers(url), self._hub, "JupyterHub answers; see its log")
        return url

    @staticmethod
    def _answers(url):
        # The proxy listens before the Hub does.
        try:
            with urllib.request.urlopen(f"{url}/hub/health", timeout=10):
                return True
        except OSError:
            return False

    def stop_hub(self):
        if self._hub is not None:
            # nsenter passes no signal on to the Hub, its child.
            if self._hub.poll() is None:
                os.kill(child_of(self._hub), signal.SIGTERM)
            self._hub.wait(timeout=60)
            self._hub = None

    def close(self):
        self._first.stdin.close()
        self._first.wait(timeout=60)
        self._first.stdout.close()
        if self._hub is not None:
            self._hub.wait(timeout=60)
