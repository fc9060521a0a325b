"""A software GPU, a daemon and programs on it, for end-to-end tests.

Everything real: the built tandem, tandemd, libtandem.so and libcuda.so.1, each test with a card and
a runtime directory of its own. Waiting is always for an event, with a bound.
"""

import fcntl
import json
import os
import pty
import signal
import socket
import struct
import subprocess
import termios
import threading
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ["TANDEM_BUILD"]).resolve()
TANDEM = BUILD / "bin" / "tandem"
TANDEMD = BUILD / "bin" / "tandemd"
TRAIN = BUILD / "bin" / "train"
SHIM = BUILD / "lib" / "libtandem.so"
SOFT_GPU = BUILD / "lib" / "tandem" / "soft"

# Programs built with sanitizers take several times as long for each step, so that fewer overlap as
# much.
SANITIZED = BUILD.name == "asan"
# For Python, whose interpreter does not free all it has when it ends.
FOR_PYTHON = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"} if SANITIZED else {}

# A test run in the background inherits these as ignored, and a program that does cannot trap them.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

MIB = 1 << 20
POLL_S = 0.01
SOCKET = "tandemd-soft.sock"  # in the runtime directory
PATIENCE_S = 300  # for anything that must happen; these machines are slow and noisy

# Of src/wire/messages.h.
MAGIC, VERSION = 0x4D444E54, 13
REGISTER, RUN_STARTED, QUERY, ANSWER, REFUSED = 1, 65, 66, 67, 127


def ffmpeg_overlay(seconds=1.4, size="1920x680", source="testsrc2"):
    """ffmpeg holding seconds x 25 frames on the card (1.99 MiB each at 1920x680); prints an md5."""
    return [
        "ffmpeg", "-v", "error", "-nostdin",
        "-init_hw_device", "cuda=cu:0", "-filter_hw_device", "cu",
        "-f", "lavfi", "-i", f"{source}=s={size}:r=25:d={seconds}",
        "-f", "lavfi", "-i", f"testsrc=s=320x240:r=25:d={seconds}",
        "-filter_complex",
        "[0]format=yuv420p,hwupload_cuda[a];[1]format=yuv420p,hwupload_cuda[b];"
        "[a][b]overlay_cuda=x=100:y=50,reverse,hwdownload,format=yuv420p",
        "-f", "md5", "-",
    ]  # fmt: skip


def steps(count):
    """Of training, as many as show the same in this build."""
    return max(count // 4, 2) if SANITIZED else count


def train(memory="160M", steps=10, *more):
    return [str(TRAIN), "--memory", memory, "--steps", str(steps), *more]


def threads(seed, rounds):
    """32 threads that use one context at the same time, checking their bytes; prints checksums."""
    return ["/usr/bin/python3", str(Path(__file__).with_name("threads_program.py")), str(seed), str(rounds)]


def frame(kind, payload=b"", magic=MAGIC, version=VERSION, length=None):
    """One message of the wire protocol."""
    return struct.pack("<IHHI", magic, version, kind, len(payload) if length is None else length) + payload


def text(value):
    data = value.encode()
    return struct.pack("<H", len(data)) + data


class Card:
    """One software GPU and the daemon that shares it."""

    def __init__(self, root, vram="256M", context="8M", bus="8GB/s", devices="gpu0"):
        self.runtime = root / "run"
        self.soft = root / "soft"
        for directory in (self.runtime, self.soft):
            directory.mkdir(mode=0o700)
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith("TANDEM_SOFT")},
            "TANDEM_GPU": "soft",
            "TANDEM_RUNTIME_DIR": str(self.runtime),
            "TANDEM_SOFT_DIR": str(self.soft),
            "TANDEM_SOFT_VRAM": vram,
            "TANDEM_SOFT_CONTEXT": context,
            "TANDEM_SOFT_PCIE": bus,
            "TANDEM_SOFT_DEVICES": devices,
        }
        self.processes = []

    # ---- programs

    def spawn(self, argv, **options):
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        options.setdefault("env", self.env)
        if any("python" in str(word) for word in argv):
            options["env"] = {**options["env"], **FOR_PYTHON}
        options.setdefault("stdin", subprocess.DEVNULL)
        process = subprocess.Popen([str(a) for a in argv], text=True, **options)
        self.processes.append(process)
        return process

    def bare(self, argv, **options):
        """Starts a program on the software GPU, without Tandem."""
        env = {**self.env, "LD_LIBRARY_PATH": str(SOFT_GPU)}
        return self.spawn(argv, env=env, **options)

    def shared(self, argv, *flags, **options):
        """Starts a program under `tandem run`."""
        return self.spawn([TANDEM, "run", *flags, "--", *argv], **options)

    def tandem(self, *words):
        """What a command of `tandem` prints."""
        return finish(self.spawn([TANDEM, *words]))

    def on_a_terminal(self, *words, columns=80, **environment):
        """What a command of `tandem` prints on a terminal of its own."""
        master, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        env = {k: v for k, v in self.env.items() if k not in ("COLUMNS", "NO_COLOR")}
        process = self.spawn([TANDEM, *words], env={**env, "TERM": "xterm", **environment}, stdout=terminal)
        os.close(terminal)
        out = b""
        while True:
            try:
                piece = os.read(master, 4096)
            except OSError:  # the end of a terminal
                break
            out += piece
        os.close(master)
        process.wait(timeout=PATIENCE_S)
        return out.decode().replace("\r\n", "\n")

    # ---- the daemon

    def start_daemon(self, *flags):
        env = {**self.env, "LD_LIBRARY_PATH": str(SOFT_GPU)}
        self.daemon = self.spawn([TANDEMD, *flags], env=env, stderr=subprocess.DEVNULL)
        wait_until(lambda: self.ask("status") is not None, self.daemon, "the daemon answers")
        return self.daemon

    def connect(self):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(PATIENCE_S)
        connection.connect(str(self.runtime / SOCKET))
        return connection

    def ask(self, what):
        """The daemon's answer to a query; None while no daemon answers."""
        try:
            with self.connect() as connection:
                connection.sendall(frame(QUERY, text(what)))
                kind, payload = receive(connection)
        except OSError:
            return None
        assert kind == ANSWER, payload
        return json.loads(payload)

    def gpu(self):
        return self.ask("status")["gpus"][0]

    def sessions(self):
        return self.ask("sessions")["sessions"]

    def handovers(self):
        return self.ask("handovers")["handovers"]

    def session_of(self, process):
        """The session whose `tandem run` is `process`; None before it registered."""
        for session in self.sessions():
            if process.pid in (session["pid"], parent_of(session["pid"])):
                return session
        return None

    def vram_used(self):
        """Bytes of the card in use, as a program that looks at it bare is told."""
        probe = self.bare([TANDEMD, "--probe"])
        device = json.loads(probe.communicate(timeout=PATIENCE_S)[0])["devices"][0]
        return device["used_bytes"]

    def close(self):
        # The daemon last: a `tandem run` that misses it starts another.
        for process in reversed(self.processes):
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        status = self.ask("status")  # a daemon that `tandem run` started
        if status is not None:
            os.kill(status["pid"], signal.SIGTERM)
            wait_until(lambda: self.ask("status") is None, None, "the daemon ends")


class DeviceProgram:
    """A device_program, which does as it is told. `prefix`: what it is started by; `room`: bytes of its memory."""

    SCRIPT = Path(__file__).with_name("device_program.py")

    def __init__(self, card, prefix=(), room=64 * MIB, **environment):
        self.process = subprocess.Popen(
            [*prefix, "/usr/bin/python3", str(self.SCRIPT), str(room)],
            env={**card.env, **FOR_PYTHON, "LD_LIBRARY_PATH": str(SOFT_GPU), **environment},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        card.processes.append(self.process)
        assert self.line() == "ready"

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def line(self):
        late = threading.Timer(PATIENCE_S, self.process.kill)
        late.start()
        line = self.process.stdout.readline()
        late.cancel()
        assert line, self.process.communicate(timeout=PATIENCE_S)
        return line.strip()

    def ask(self, line):
        self.tell(line)
        return self.line()

    def number(self, line):
        return int(self.ask(line).split()[1])

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def proceed(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait()


def receive(connection):
    """One message: (type, payload); raises ConnectionError at the end of the stream."""

    def exactly(count):
        data = b""
        while len(data) < count:
            piece = connection.recv(count - len(data))
            if not piece:
                raise ConnectionError("the daemon closed the connection")
            data += piece
        return data

    magic, _, kind, length = struct.unpack("<IHHI", exactly(12))
    assert magic == MAGIC
    return kind, exactly(length)


def parent_of(pid):
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return None


def children_of(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_until(condition, process, what, patience=PATIENCE_S):
    """Waits until condition() holds; fails if `process` (None: no process) ends or time is up first."""
    deadline = time.monotonic() + patience
    while not (result := condition()):
        assert time.monotonic() < deadline, f"waited {patience} s in vain: {what}"
        if process is None:
            time.sleep(POLL_S)
            continue
        try:
            process.wait(timeout=POLL_S)
        except subprocess.TimeoutExpired:
            continue
        if result := condition():
            break
        raise AssertionError(f"{process.args[0]} ended with {process.returncode} before: {what}")
    return result


def finish(process, expect=0):
    """Waits for a process; its standard output."""
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == expect, f"{process.args}: {process.returncode}\n{out}\n{err}"
    return out
