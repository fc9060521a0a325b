"""Containers of Podman on this machine, as root, with their own storage: nothing of the machine's is touched."""

import contextlib
import json
import os
import re
import resource
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

import users
from harness import BUILD, Card, finish, wait_until

SPECIFICATIONS = Path("/var/run/cdi")
IMAGE = "tandem-test"
PROGRAMS = ("/bin/bash", "/bin/cat", "/bin/sleep", "/bin/touch", "/usr/bin/id")


def copy_program(program, root):
    """A program and the libraries that it is linked with."""
    target = root / "bin" / Path(program).name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(program, target)
    for library in re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", program], capture_output=True, text=True).stdout):
        folder = root / ("lib64" if "ld-linux" in library else "lib/x86_64-linux-gnu")
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, folder)


class Podman:
    """A software GPU with its daemon, an image with a shell and `train`, and Tandem's devices."""

    def __init__(self, runtime="runc", devices="gpu0"):
        self.root = Path(tempfile.mkdtemp(prefix="tandem-podman-", dir="/tmp"))
        self.root.chmod(0o755)
        self.kind = f"test{os.getpid()}.tandem.dev/gpu"
        self.specification = SPECIFICATIONS / f"tandem-test-{os.getpid()}.json"
        self.card = Card(self.root, vram="64M", context="2M", devices=devices)
        self.card.env["TANDEM_SOFT_SHARED"] = "1"
        for directory in (self.card.runtime, self.card.soft):
            directory.chmod(0o755)
        self.start_daemon()
        self.podman = ["podman", "--root", self.root / "storage", "--runroot", self.root / "state", "--storage-driver", "vfs",
                       "--runtime", runtime, "--cgroup-manager", "cgroupfs", "--log-level", "error"]  # fmt: skip
        try:
            self.import_image()
        except AssertionError as failed:
            self.skip(failed)
        self.generate()
        plain = self.run("/bin/cat", "/dev/null")
        _, err = plain.communicate(timeout=300)
        if plain.returncode != 0:
            self.skip(err)

    def skip(self, why):
        self.close()
        pytest.skip(f"Podman starts no container here: {why}")

    def start_daemon(self):
        self.card.start_daemon("--everybody")

    def generate(self, *flags):
        self.card.tandem("cdi", "generate", "--kind", self.kind, "--size", "40M", "--size", "50M", "--output",
                         self.specification, *flags)  # fmt: skip

    def import_image(self, name=IMAGE, musl=False):
        files = self.root / "image"
        for program in (*PROGRAMS, BUILD / "bin" / "train"):
            copy_program(str(program), files)
        (files / "bin" / "sh").symlink_to("bash")
        if musl:
            (files / "lib" / "ld-musl-x86_64.so.1").touch()
            (files / "lib64" / "ld-linux-x86-64.so.2").unlink()
        for folder in ("etc", "tmp", "proc", "dev", "sys", "run"):
            (files / folder).mkdir()
        archive = self.root / "image.tar"
        subprocess.run(["tar", "-C", files, "-cf", archive, "."], check=True)
        shutil.rmtree(files)
        self.command("import", "-q", archive, name)

    def spawn(self, *words):
        return self.card.spawn([*self.podman, *words], env={k: v for k, v in os.environ.items() if k[:7] != "TANDEM_"})

    def command(self, *words):
        return finish(self.spawn(*words))

    def run(self, *words, device=None, name=None, image=IMAGE, flags=()):
        """Starts `podman run`. Podman's own limits are above this machine's, which may not allow to raise them."""
        limits = []
        for limit, number in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
            most = min(n for n in (resource.getrlimit(number)[1], 20000) if n >= 0)
            limits.append(f"--ulimit={limit}={most}:{most}")
        devices = [f"--device={self.kind}={device}"] if device is not None else []
        names = [f"--name={name}", f"--hostname={name}"] if name is not None else []
        return self.spawn("run", "--rm", "--network=none", *limits, *devices, *names, *flags, image, *words)

    def leases(self):
        return json.loads(self.card.tandem("lease", "list", "--json"))["leases"]

    def settle(self):
        """No container is left, and no lease."""
        if self.card.ask("status") is None:
            self.start_daemon()
        self.command("rm", "--all", "--force", "--time", "0")
        wait_until(lambda: self.leases() == [], self.card.daemon, "no lease is left")

    def close(self):
        with contextlib.suppress(AssertionError):
            self.command("rm", "--all", "--force", "--time", "0")
        self.specification.unlink(missing_ok=True)
        self.card.close()
        shutil.rmtree(self.root, ignore_errors=True)


def unusable():
    """Why no container can be made here; empty where one can."""
    if not users.can_be_others():
        return "needs root"
    return "" if shutil.which("podman") else "needs podman"
