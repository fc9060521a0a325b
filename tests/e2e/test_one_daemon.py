"""One user, one daemon: all sessions of a user find it, and a logout leaves it running."""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

import users
from harness import PATIENCE_S, wait_until

# A user of this test process alone: the directory in /tmp is the user's.
USER = 64200 + os.getpid() % 1000


def stop(pid):
    def gone():
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return "Z (zombie)" in Path(f"/proc/{pid}/status").read_text()

    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 15)
        wait_until(gone, None, "the daemon ended")


class Home:
    """A user's commands, in environments that `login` and cron make."""

    def __init__(self, root):
        self.root = root
        root.chmod(0o711)
        self.bin = users.install(root)
        self.directory = Path(f"/tmp/tandem-{USER}")
        self.pids = set()

    def login(self):
        runtime = Path(tempfile.mkdtemp(dir=self.root))
        os.chown(runtime, USER, USER)
        return runtime

    def named(self, ending):
        return Path(f"{self.directory}{ending}")

    def tandem(self, *words, **more):
        done = self.run(*words, **more)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(self, *words, **more):
        env = {
            "PATH": os.environ["PATH"],
            "TANDEM_GPU": "soft",
            "TANDEM_SOFT_VRAM": "256M",
            "TANDEM_SOFT_CONTEXT": "8M",
            **{name: str(value) for name, value in more.items()},
        }
        argv = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", self.bin / "tandem", *words]
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    def daemon(self, **more):
        status = json.loads(self.tandem("status", "--json", **more))
        if status["pid"] is not None:
            self.pids.add(status["pid"])
        return status["pid"]

    def close(self):
        for pid in self.pids:
            stop(pid)
        for directory in Path("/tmp").glob(f"{self.directory.name}*"):
            shutil.rmtree(directory, ignore_errors=True)
        shutil.rmtree(self.root, ignore_errors=True)


@pytest.fixture
def home():
    if not users.can_be_others():
        pytest.skip("needs root, to be another user")
    if Path("/run/tandem").is_dir() and Path("/run/tandem").stat().st_mode & 0o777 == 0o711:
        pytest.skip("this machine has a daemon for everybody")
    made = Home(Path(tempfile.mkdtemp(prefix="tandem-home-")))
    yield made
    made.close()


def test_a_daemon_is_found_with_and_without_a_login(home):
    first = home.login()
    home.tandem("run", "--", "true", XDG_RUNTIME_DIR=first)
    pid = home.daemon(XDG_RUNTIME_DIR=first)
    assert pid is not None
    assert home.daemon() == pid, "as from cron"
    shutil.rmtree(first)  # as a logout does
    home.tandem("run", "--", home.bin / "train", "--memory", "20M", "--steps", "2")
    home.tandem("run", "--", "true", XDG_RUNTIME_DIR=home.login())
    assert home.daemon(XDG_RUNTIME_DIR=home.login()) == home.daemon() == pid


def test_a_directory_of_another_user_locks_nobody_out(home):
    """Made beforehand, as any user can: the daemon listens elsewhere, and says so once."""
    taken = [home.directory, home.named(".1")]
    for directory in taken:
        directory.mkdir(mode=0o777)
    said = home.run("run", "--", "true").stderr
    assert f"{home.directory} belongs to another user; the daemon listens in {home.named('.2')}" in said
    pid = home.daemon()
    assert pid is not None
    assert home.run("run", "--", home.bin / "train", "--memory", "20M", "--steps", "2").stderr.count("belongs") == 0
    home.directory.rmdir()
    assert home.daemon() == pid, "it is found where it listens"
    assert all(list(directory.iterdir()) == [] for directory in taken[1:])


def test_a_user_whose_names_are_all_taken_is_told_what_to_do(home):
    for ending in ("", *(f".{i}" for i in range(1, 9))):
        home.named(ending).mkdir(mode=0o777)
    refused = home.run("run", "--", "true")
    assert refused.returncode != 0
    assert f"{home.directory} must be a directory of your own" in refused.stderr
    assert "set TANDEM_RUNTIME_DIR to a directory of your own" in refused.stderr


def test_another_directory_has_another_daemon(home):
    home.tandem("run", "--", "true")
    other = home.login()
    assert home.daemon(TANDEM_RUNTIME_DIR=other) is None
    home.tandem("run", "--", "true", TANDEM_RUNTIME_DIR=other)
    assert home.daemon(TANDEM_RUNTIME_DIR=other) not in (None, home.daemon())
