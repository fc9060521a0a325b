"""What neither the card nor the host's memory holds lies in files, and comes back as it was."""

import contextlib
import os
import re
import signal
import socket
import struct
import subprocess
import sys

import pytest

from harness import (
    MIB,
    PATIENCE_S,
    REGISTER,
    SOCKET,
    TANDEM,
    TANDEMD,
    DeviceProgram,
    finish,
    frame,
    parent_of,
    text,
    train,
    wait_until,
)
from test_restart import kill_daemon
from test_sharing import assert_all_returned, solo

pytestmark = pytest.mark.sanitized

HOST = 8 * MIB


@pytest.fixture
def card(make_card, tmp_path):
    """Two programs of 60 MiB do not fit on it, and what one of them has to give up not in memory."""
    card = make_card(vram="96M", context="2M")
    card.env["TANDEM_HOST_MEMORY"] = "8M"
    card.env["TANDEM_SPILL"] = f"{tmp_path}:200M"
    card.directory = tmp_path
    card.start_daemon()
    return card


def in_files(card, pid):
    """Bytes of the process's memory that lie in files of the spill directory, which have no names;
    none of a process that has ended."""
    total, inside = 0, False
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps", encoding="ascii") as maps:
        for line in maps:
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                inside = f" {card.directory}/" in line and line.endswith(" (deleted)\n")
            elif inside and line.startswith("Rss:"):
                total += int(line.split()[1]) * 1024
    return total


def test_programs_that_neither_card_nor_memory_hold_finish_right(card):
    fitting = train("60M", 6)
    expected = solo(card, fitting)
    first, second = card.shared(fitting), card.shared(fitting)

    def spilled():
        sessions = card.ask("sessions")["sessions"]
        return sum(in_files(card, each["pid"]) for each in sessions) >= 8 * MIB

    wait_until(spilled, first, "what does not fit lies in a file")
    status = card.ask("status")
    assert status["spill_promised_bytes"] > 0
    assert status["host_promised_bytes"] - status["spill_promised_bytes"] <= HOST
    assert f"of it in files in {card.directory}" in finish(card.spawn([TANDEM, "status"]))
    assert os.listdir(card.directory) == []  # they have no names
    assert finish(first) == expected
    assert finish(second) == expected
    assert card.handovers() != []
    assert_all_returned(card)
    assert card.ask("status")["spill_promised_bytes"] == 0


def test_a_suspended_program_waits_in_a_file_through_a_restart(card):
    program = DeviceProgram(card, [TANDEM, "run", "--name", "big", "--"])
    digest = program.ask("fill 3")
    finish(card.spawn([TANDEM, "suspend", "big"]))
    pid = card.session_of(program.process)["pid"]
    wait_until(lambda: in_files(card, pid) >= 32 * MIB, program.process, "it leaves the card")
    kill_daemon(card)
    wait_until(lambda: card.session_of(program.process), program.process, "it is back")
    assert in_files(card, pid) >= 32 * MIB
    finish(card.spawn([TANDEM, "resume", "big"]))
    assert program.ask("digest") == digest
    # And once more: by now the file is another daemon's.
    digest = program.ask("fill 4")
    finish(card.spawn([TANDEM, "suspend", "big"]))
    wait_until(lambda: in_files(card, pid) >= 32 * MIB, program.process, "it leaves the card again")
    finish(card.spawn([TANDEM, "resume", "big"]))
    assert program.ask("digest") == digest
    finish(program.process)


# Its memory is in files when it forks, and its child looks for them.
FORKS = """
import ctypes, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, pointer, size = ctypes.c_void_p(), ctypes.c_uint64(), 64 << 20
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0
data = os.urandom(1 << 20) * 64
assert cuda.cuMemcpyHtoD_v2(pointer, data, ctypes.c_size_t(size)) == 0

def ours():
    files = [os.readlink(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd") if
             os.path.lexists(f"/proc/self/fd/{each}")]
    return [each for each in files + list(open("/proc/self/maps")) if sys.argv[1] + "/" in each]

print("ready", flush=True)
sys.stdin.readline()
assert ours()
child = os.fork()
if child == 0:
    os._exit(len(ours()))
assert os.waitpid(child, 0)[1] == 0
print("forked", flush=True)
sys.stdin.readline()
back = ctypes.create_string_buffer(size)
assert cuda.cuMemcpyDtoH_v2(back, pointer, ctypes.c_size_t(size)) == 0
assert back.raw == data
"""


def test_a_child_has_nothing_of_the_file(card):
    forks = ["/usr/bin/python3", "-c", FORKS, card.directory]
    program = card.shared(forks, "--name", "parent", stdin=subprocess.PIPE)
    assert program.stdout.readline() == "ready\n"
    finish(card.spawn([TANDEM, "suspend", "parent"]))
    (session,) = card.sessions()
    wait_until(lambda: in_files(card, session["pid"]) >= 32 * MIB, program, "it leaves the card")
    program.stdin.write("\n")
    program.stdin.flush()
    assert program.stdout.readline() == "forked\n"
    finish(card.spawn([TANDEM, "resume", "parent"]))
    program.stdin.write("\n")
    program.stdin.flush()
    finish(program)


# A session by hand that takes as much of its file as it is told, without being promised any.
TAKES = """
import os, socket, struct, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.sendall(bytes.fromhex(sys.argv[2]))
_, ancillary, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(12))
file = struct.unpack("<3i", ancillary[0][2])[2]
print("ready", flush=True)
for line in sys.stdin:
    os.posix_fallocate(file, 0, int(line))
    print(os.fstat(file).st_blocks * 512, flush=True)
"""


@pytest.fixture
def logged(make_card, tmp_path):
    """As `card`, with a daemon that writes a log."""
    card = make_card(vram="96M", context="2M")
    card.directory = tmp_path / "spill"
    card.directory.mkdir()
    card.log = tmp_path / "log"
    env = {"TANDEM_HOST_MEMORY": "8M", "TANDEM_SPILL": f"{card.directory}:200M"}
    card.env.update(env)
    card.daemon = card.bare([TANDEMD, "--log", card.log])
    wait_until(lambda: card.ask("status") is not None, card.daemon, "the daemon answers")
    return card


def says(card, words):
    return words in card.log.read_text()


def keeper_of(card):
    """The process that makes the daemon's files."""

    def is_keeper(pid):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", encoding="ascii") as line:
            return "--spill-keeper" in line.read() and parent_of(pid) == card.daemon.pid

    return next(int(pid) for pid in os.listdir("/proc") if pid.isdigit() and is_keeper(pid))


def hello(card):
    claims = struct.pack("<QQIBQBB", 0, 0, 0, 0, 0, 0, 1)
    device = card.gpu()["uuid"]
    return frame(REGISTER, text("0.1") + struct.pack("<Q", 0) + text(device) + text("takes") + claims)


def test_a_file_that_grows_beyond_its_promise_ends_its_program_alone(logged):
    card = logged
    other = DeviceProgram(card, [TANDEM, "run", "--name", "other", "--"])
    digest = other.ask("fill 3")
    argv = [sys.executable, "-c", TAKES, card.runtime / SOCKET, hello(card).hex()]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout.readline() == "ready\n"
        program.stdin.write(f"{MIB}\n")  # as others may, whose promise has just shrunk
        program.stdin.flush()
        assert int(program.stdout.readline()) >= MIB
        assert program.poll() is None
        program.stdin.write(f"{100 * MIB}\n")
        program.stdin.flush()
        assert program.wait(timeout=PATIENCE_S) == -signal.SIGKILL
    assert says(card, "has 100 MiB in its spill file, and was promised 0 B: it is ended")
    wait_until(lambda: len(card.sessions()) == 1, None, "its session ends")
    assert other.ask("digest") == digest
    finish(other.process)


def test_a_file_that_went_to_another_process_ends_with_its_program(logged):
    card = logged
    ours, theirs = socket.socketpair()
    sends = TAKES.replace('print("ready"', 'socket.send_fds(socket.socket(fileno=os.dup(0)), [b"x"], [file]); print("ready"')
    argv = [sys.executable, "-c", sends, card.runtime / SOCKET, hello(card).hex()]
    with ours, subprocess.Popen(argv, stdin=theirs, stdout=subprocess.PIPE) as program:
        theirs.close()
        _, (file,), _, _ = socket.recv_fds(ours, 1, 1)
        os.posix_fallocate(file, 0, MIB)
        program.kill()
        wait_until(lambda: os.fstat(file).st_blocks == 0, None, "it holds nothing")
        os.posix_fallocate(file, 0, MIB)
        wait_until(lambda: os.fstat(file).st_blocks == 0, None, "nor later on")
        os.close(file)


def test_a_file_system_that_hangs_stops_nobody(logged):
    """Only a session that needs a file waits for it, for three seconds at most."""
    card = logged
    job = train("40M", 3)
    expected = solo(card, job)
    keeper = keeper_of(card)
    os.kill(keeper, signal.SIGSTOP)  # as a process that waits for a file system
    try:
        waits = card.shared(job)
        wait_until(lambda: says(card, "has not answered for 3 s"), waits, "the log says so")
        assert card.ask("status")["spill_limit_bytes"] == 200 * MIB
        assert finish(waits) == expected
        assert finish(card.shared(job)) == expected  # and this one waits for nothing
    finally:
        os.kill(keeper, signal.SIGCONT)
    wait_until(lambda: says(card, "answers again"), card.daemon, "it goes on")
    program = DeviceProgram(card, [TANDEM, "run", "--name", "big", "--"])
    digest = program.ask("fill 3")
    finish(card.spawn([TANDEM, "suspend", "big"]))
    pid = card.session_of(program.process)["pid"]
    wait_until(lambda: in_files(card, pid) >= 32 * MIB, program.process, "it leaves the card")
    finish(card.spawn([TANDEM, "resume", "big"]))
    assert program.ask("digest") == digest
    finish(program.process)


@pytest.mark.parametrize(
    "value, reason",
    [
        ("64G", "a directory and a size are wanted, such as /var/tmp:64G"),
        ("/nowhere/at/all:64G", "cannot make a file in /nowhere/at/all: No such file or directory"),
    ],
)
def test_a_mistake_is_said_at_the_start(make_card, value, reason):
    card = make_card(vram="96M", context="2M")
    tried = subprocess.run(
        [TANDEMD, "--spill", value], env=card.env, capture_output=True, text=True,
        timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert tried.returncode != 0 and reason in tried.stderr, tried.stderr
