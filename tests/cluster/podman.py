"""Containers of Podman on this machine, as root, with their own storage: nothing of the machine's is touched."""

import contextlib
import itertools
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


def inside(job):
    """The command of a job of `train` in a container."""
    return ["/bin/train", *job[1:]]


def fails(process):
    """What a program says that has to fail."""
    _, err = process.communicate(timeout=300)
    assert process.returncode != 0
    return err


class Podman:
    """A software GPU with its daemon, an image with a shell and `train`, and Tandem's devices."""

    NAME = "test"
    NUMBERS = itertools.count()

    def __init__(self, runtime="runc", devices="gpu0", bus="8GB/s"):
        self.root = Path(tempfile.mkdtemp(prefix="tandem-podman-", dir="/tmp"))
        self.root.chmod(0o755)
        own = f"{self.NAME}{os.getpid()}n{next(self.NUMBERS)}"
        self.kind = f"{own}.tandem.dev/gpu"
        self.specification = SPECIFICATIONS / f"tandem-{own}.json"
        self.card = Card(self.root, vram="64M", context="2M", bus=bus, devices=devices)
        self.podman = ["podman", "--root", self.root / "storage", "--runroot", self.root / "state", "--storage-driver", "vfs",
                       "--runtime", runtime, "--cgroup-manager", "cgroupfs", "--log-level", "error"]  # fmt: skip
        self.prepare()
        self.start_daemon()
        try:
            self.import_image()
        except AssertionError as failed:
            self.skip(failed)
        self.generate()
        plain = self.run("/bin/cat", "/dev/null")
        _, err = plain.communicate(timeout=300)
        if plain.returncode != 0:
            self.skip(err)

    def prepare(self):
        self.card.env["TANDEM_SOFT_SHARED"] = "1"
        for directory in (self.card.runtime, self.card.soft):
            directory.chmod(0o755)

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
        self.import_files(files, name)

    def import_files(self, files, name):
        """Makes them the image's; they go."""
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

    def await_overflow(self, process, times=2):
        """Until programs have `times` the memory that can be shared of GPU 0."""

        def ratio():
            return sum(s["allocated_bytes"] for s in self.card.sessions()) / self.card.gpu()["budget_bytes"]

        wait_until(lambda: ratio() >= times, process, f"programs have {times} times the GPU's memory")

    def settle(self):
        """No container is left, and no lease."""
        if self.card.ask("status") is None:
            self.start_daemon()
        self.remove_containers()
        wait_until(lambda: self.leases() == [], self.card.daemon, "no lease is left")

    def remove_containers(self):
        self.command("rm", "--all", "--force", "--time", "0")

    def end(self):
        """What Podman keeps running without a container: nothing."""

    def close(self):
        """Also where it was not made in whole."""
        with contextlib.suppress(AssertionError):
            self.remove_containers()
            self.end()
        self.specification.unlink(missing_ok=True)
        for of_one_device in SPECIFICATIONS.glob(f"{self.specification.stem}-*.json"):
            of_one_device.unlink()
        self.card.close()
        shutil.rmtree(self.root, ignore_errors=True)


class UsersPodman(Podman):
    """The same of an ordinary user, with that user's daemon. No account is needed."""

    NAME = "testuser"
    UID = users.VICTIM

    def prepare(self):
        self.bin = users.install(self.root / "installed")
        preload = Path("lib/tandem/ld.so.preload")
        shutil.copy(BUILD / preload, self.root / "installed" / preload)
        for name in ("storage", "state", "home", "session"):
            (self.root / name).mkdir(mode=0o700)
        for folder in (*(self.root / n for n in ("storage", "state", "home", "session")), self.card.runtime, self.card.soft):
            os.chown(folder, self.UID, self.UID)

    def as_user(self, *words, env):
        own = {"HOME": str(self.root / "home"), "XDG_RUNTIME_DIR": str(self.root / "session"), "USER": "nobody-known"}
        return self.card.spawn(
            ["setpriv", f"--reuid={self.UID}", f"--regid={self.UID}", "--clear-groups", *words], env={**env, **own}, cwd="/"
        )

    def bare(self, program, *words):
        """Starts an installed program, as that user, on the software GPU."""
        soft = self.root / "installed" / "lib" / "tandem" / "soft"
        return self.as_user(self.bin / program, *words, env={**self.card.env, "LD_LIBRARY_PATH": str(soft)})

    def start_daemon(self):
        self.card.daemon = self.bare("tandemd")
        wait_until(lambda: self.card.ask("status") is not None, self.card.daemon, "the daemon answers")

    def generate(self):
        words = ["cdi", "generate", "--kind", self.kind, "--size", "40M"]
        text = finish(self.as_user(self.bin / "tandem", *words, env=self.card.env))
        SPECIFICATIONS.mkdir(exist_ok=True)
        self.specification.write_text(text)

    def spawn(self, *words):
        return self.as_user(*self.podman, *words, env={k: v for k, v in os.environ.items() if k[:7] != "TANDEM_"})

    def leases(self):
        return self.card.ask("leases")["leases"]

    def end(self):
        """The process that keeps the user's namespace."""
        self.command("system", "migrate")


def unusable():
    """Why no container can be made here; empty where one can."""
    if not users.can_be_others():
        return "needs root"
    return "" if shutil.which("podman") else "needs podman"
