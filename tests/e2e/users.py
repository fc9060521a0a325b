"""Two users at one card, for test_isolation.py: root's daemon for all users, a victim's program at
work, and processes that do a stranger's bidding. No account is needed: the kernel knows users by
number.
"""

import contextlib
import json
import os
import pickle
import random
import re
import resource
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import zlib
from pathlib import Path

import harness
from harness import MIB, PATIENCE_S, SOCKET, Card, DeviceProgram, finish, frame, receive, text, wait_until

# Of this test process alone, since a user's own directory is in /tmp.
VICTIM = 62000 + os.getpid() % 1000 * 2
STRANGER = VICTIM + 1
NAME = "victims"  # of the victim's run
MEMORY = 64 * MIB  # of a DeviceProgram

# Of src/wire/messages.h.
(REGISTER, RESERVE, CONTEXT_WANTED, CONTEXT_GONE, READY, RUNNING, IDLE, ACTIVE, RELEASED, BUSY, EVICTED,
 FIXED_WANTED, FIXED_GONE) = range(1, 14)
REGISTERED, GRANT, REVOKE, EVICT = 32, 35, 37, 38
RUN_BEGIN, RUN_STARTED, CONTROL, RUN_QUERY, OFFER = 64, 65, 68, 70, 72
KINDS = [int(kind) for kind in re.findall(r"kType = (\d+);", (harness.SOURCE / "src/wire/messages.h").read_text())]
UNKNOWN_TARGET, NOT_YOURS = 6, 7  # why something is refused


def become(uid):
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def can_be_others():
    """Whether this process may act as those users, which in a user namespace need not exist."""
    if os.geteuid() != 0:
        return False
    pid = os.fork()
    if pid == 0:
        try:
            become(VICTIM)
            os._exit(0)
        except OSError:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


class Stranger:
    """A process of the stranger's that runs act(*arguments) and tells what comes of it. Where act
    takes a `line`, it says there when it has begun, and goes on when it is told to."""

    def __init__(self, act, *arguments, **options):
        reader, writer = os.pipe()
        self.line, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reader)
            self.line.close()
            if options.pop("line", False):
                options["line"] = theirs
            outcome = None
            try:
                hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
                become(STRANGER)
                outcome = ("gave", act(*arguments, **options))
            except BaseException as error:
                outcome = ("raised", repr(error))
            finally:
                with os.fdopen(writer, "wb") as pipe:
                    pickle.dump(outcome, pipe)
                os._exit(0)
        os.close(writer)
        theirs.close()
        self.answers = os.fdopen(reader, "rb")

    def await_begin(self):
        if self.line.recv(1) == b"":
            raise AssertionError(self.outcome())

    def outcome(self):
        """What act gave. Where it waits for that, it is told to go on."""
        self.line.shutdown(socket.SHUT_WR)
        how, what = pickle.load(self.answers)
        self.end()
        assert how == "gave", what
        return what

    def end(self):
        if self.pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        self.pid = None
        self.answers.close()
        self.line.close()


def begin_and_wait(line):
    """For an act with a `line`: has begun, and waits to be told to go on."""
    line.sendall(b"x")
    line.recv(1)


def as_stranger(act, *arguments):
    return Stranger(act, *arguments).outcome()


def register(device, token=0, claims=(0, 0, 0, 0, 0)):
    """A session's first message. `claims`: allocated, resident, contexts, suspended, fixed."""
    allocated, resident, contexts, suspended, fixed = claims
    return frame(
        REGISTER,
        text("0.1") + struct.pack("<Q", token) + text(device) + text("stranger")
        + struct.pack("<QQIBQ", allocated, resident, contexts, suspended, fixed),
    )  # fmt: skip


def numbers(kind, *values):
    """A message that has nothing but 64-bit fields."""
    return frame(kind, struct.pack(f"<{len(values)}Q", *values))


def control(what, target, limit=0):
    return frame(CONTROL, text(what) + text(target) + struct.pack("<Q", limit))


def refusal_code(payload):
    return struct.unpack_from("<HH", payload)[1]


def install(root):
    """Copies the build below `root`: other users may not be able to reach the build's folder. Returns
    the folder of the programs."""
    (root / "lib" / "tandem").mkdir(parents=True)
    (root / "bin").mkdir()
    for tool in ("tandem", "tandemd", "train"):
        shutil.copy(harness.BUILD / "bin" / tool, root / "bin")
    if (server := harness.BUILD / "lib" / "tandem" / "tandem-serve").exists():
        shutil.copy(server, root / "lib" / "tandem")
    shutil.copy(harness.SHIM, root / "lib")
    shutil.copytree(harness.SOFT_GPU, root / "lib" / "tandem" / "soft", symlinks=True)
    shutil.copy(DeviceProgram.SCRIPT, root)
    for path in root.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755)
    return root / "bin"


class Scene:
    """Root's daemon and a software GPU, both for all users, and the victim's program."""

    def __init__(self, host_memory=MEMORY // 2, spill="1G"):
        """`spill`: None for none."""
        self.log = None
        self.root = Path(tempfile.mkdtemp(prefix="tandem-users-"))
        self.own_directory = Path(f"/tmp/tandem-{VICTIM}")
        self.root.chmod(0o711)
        self.bin = install(self.root)
        self.card = Card(self.root)
        self.card.soft.chmod(0o755)
        self.card.env["TANDEM_SOFT_SHARED"] = "1"
        # Of what leaves the card a part lies in files, in a directory where all users may look.
        self.spill = self.root / "spill"
        self.spill.mkdir(mode=0o777)
        self.spill.chmod(0o777)
        self.card.env["TANDEM_HOST_MEMORY"] = f"{host_memory}B"
        if spill is not None:
            self.card.env["TANDEM_SPILL"] = f"{self.spill}:{spill}"
        self.log = self.root / "log"
        self.start_daemon("--everybody", "--log", self.log)
        self.program = self._start_victim()
        memory = random.Random(1).randbytes(MEMORY)
        self.pattern = memory[64:128]  # bytes that are in the victim's memory and nowhere else
        self.digest = f"digest {zlib.crc32(memory[8:])}"
        assert self.program.ask("fill 1") == self.digest

    def _start_victim(self):
        class Program(DeviceProgram):
            SCRIPT = self.root / "device_program.py"

        return Program(self.card, self.as_victim("run", "--name", NAME, "--"), LD_LIBRARY_PATH=str(self.soft_gpu))

    @property
    def soft_gpu(self):
        return self.root / "lib" / "tandem" / "soft"

    def start_daemon(self, *flags):
        env = {**self.card.env, "LD_LIBRARY_PATH": str(self.soft_gpu)}
        # Short turns, so that no session waits long for its own.
        self.daemon = self.card.spawn([self.bin / "tandemd", "--turn", "50ms", *flags], env=env, stderr=subprocess.DEVNULL)
        wait_until(lambda: self.card.ask("status") is not None, self.daemon, "the daemon answers")

    # ---- what its owner does

    def as_victim(self, *words, uid=VICTIM):
        """A command line of `tandem` as that user."""
        return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", str(self.bin / "tandem"), *words]

    def order(self, *words):
        return json.loads(finish(self.card.spawn(self.as_victim(*words, "--json"))))["sessions"]

    def session(self):
        (session,) = [s for s in self.card.sessions() if s["uid"] == VICTIM and s["name"] == NAME]
        return session

    def pids(self):
        """Of what must stay closed to strangers: the program, its guard and the daemon."""
        return [self.session()["pid"], self.program.process.pid, self.daemon.pid]

    def assert_unharmed(self):
        """The victim works as ever, and has every byte."""
        assert self.program.ask("kernel 1000") == "queued"
        assert self.program.ask("sync") == "sync 0"
        assert self.program.ask("digest") == self.digest
        session = self.session()
        assert not session["suspended"] and session["limit_bytes"] == self.card.gpu()["budget_bytes"]
        assert self.daemon.poll() is None

    def connect(self):
        """Waits where too many wait to be let in, as `tandem` does."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(str(self.card.runtime / SOCKET))
        connection.settimeout(PATIENCE_S)
        return connection

    def device(self):
        return self.card.gpu()["uuid"]

    def close(self):
        self.card.close()
        shutil.rmtree(self.own_directory, ignore_errors=True)
        shutil.rmtree(self.root, ignore_errors=True)


class Session:
    """A session of the process that makes it, with messages sent by hand."""

    def __init__(self, scene, device, token=0):
        self.connection = scene.connect()
        self.connection.sendall(register(device, token))
        _, ancillary, _, _ = self.connection.recvmsg(1, socket.CMSG_SPACE(8), socket.MSG_PEEK)  # its descriptors
        self.kind, self.payload = receive(self.connection)
        self.speaking = threading.Lock()
        self.fds = list(struct.unpack("<2i", ancillary[0][2])) if ancillary else []

    def say(self, *messages):
        with self.speaking:
            self.connection.sendall(b"".join(messages))

    def hear(self):
        return receive(self.connection)
