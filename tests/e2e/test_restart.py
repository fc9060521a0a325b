"""The daemon dies without a word: programs go on, finish right, and keep their limits."""

import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from harness import MIB, PATIENCE_S, REFUSED, REGISTER, RUN_STARTED, SOCKET, TANDEMD, TRAIN, finish, frame, text, train, wait_until
from test_sharing import assert_all_returned, solo

LONG = train("40M", 60)


def kill_daemon(card):
    """Kills the daemon; the guard of whatever runs starts another, whose process number this gives."""
    old = card.ask("status")["pid"]
    card.daemon.send_signal(signal.SIGKILL)
    card.daemon.wait()

    def successor():
        status = card.ask("status")
        return status and status["pid"] != old and status["pid"]

    return wait_until(successor, None, "another daemon answers")


def held(job, go):
    """The same job, which is there until the file `go` is, however slow the machine."""
    return [*job, "--hold", str(go)]


def test_holder_and_waiter_finish_right(make_card, tmp_path):
    card = make_card(vram="64M", context="2M")  # a budget of 54 MiB; each trainer has 50
    card.start_daemon()
    expected = solo(card, LONG)
    go = tmp_path / "go"
    both = [card.shared(held(LONG, go)), card.shared(held(LONG, go))]

    def one_waits():
        states = [s["state"] for s in card.sessions()]
        return len(states) == 2 and "waiting" in states

    wait_until(one_waits, both[0], "one holds and one waits")
    budget = card.gpu()["budget_bytes"]
    kill_daemon(card)
    wait_until(lambda: len(card.sessions()) == 2, both[0], "both have come back")
    go.touch()
    assert card.gpu()["budget_bytes"] == budget
    assert [finish(process) for process in both] == [expected, expected]
    assert_all_returned(card)


def test_a_full_card_is_no_obstacle(make_card, tmp_path):
    """The new daemon finds no room for a context of its own to measure with."""
    card = make_card(vram="96M")  # a budget of 62 MiB; each job has 22
    card.start_daemon()
    budget = card.gpu()["budget_bytes"]  # a context that begins may take from it for a moment
    job, go = train("12M", 40), tmp_path / "go"
    expected = solo(card, job)
    jobs = [card.shared(held(job, go)) for _ in range(4)]  # their contexts fill what the daemon keeps free

    def full():
        sessions = card.sessions()
        resident = sum(s["resident_bytes"] for s in sessions)
        if sum(s["contexts"] for s in sessions) != 4 or resident < budget - 6 * MIB:
            return False
        return card.vram_used() > 88 * MIB  # of 96: no room for the two that measure

    wait_until(full, jobs[0], "the card is full")
    kill_daemon(card)
    wait_until(lambda: len(card.sessions()) == 4, jobs[0], "all have come back")
    wait_until(lambda: card.gpu()["budget_bytes"] == budget, jobs[0], "the budget is whole")
    go.touch()
    assert [finish(process) for process in jobs] == [expected] * 4
    assert_all_returned(card)


def test_a_second_daemon_says_that_one_runs(card):
    for how in ([], ["--daemonize"]):
        second = card.spawn([TANDEMD, *how])
        _, err = second.communicate(timeout=PATIENCE_S)
        assert second.returncode == 75
        assert f"a daemon runs already, process {card.daemon.pid};" in err


def test_a_limit_outlives_the_daemon(card, tmp_path):
    """The limit holds for what runs and for what the run starts afterwards."""
    job, late = train("60M", 60), [str(TRAIN), "--memory", "60M", "--steps", "1"]
    expected = solo(card, job)
    go, done = tmp_path / "go", tmp_path / "done"
    script = f"""{' '.join(held(job, done))} & until [ -e {go} ]; do sleep 0.05; done
        {' '.join(late)} >&2; echo late $? >&2; touch {done}; wait $!"""
    process = card.shared(["bash", "-c", script], "--memory", "100M", "--name", "limited")
    wait_until(lambda: [s for s in card.sessions() if s["state"] == "running"], process, "it runs")
    kill_daemon(card)

    def back():
        return [s for s in card.sessions() if s["name"] == "limited" and s["limit_bytes"] == 100 * MIB]

    wait_until(back, process, "the run is known by its name and limit")
    go.touch()
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert "OUT_OF_MEMORY" in err and "late 1" in err  # 60 + 60 MiB are above the limit
    assert out == expected
    assert_all_returned(card)


def test_a_program_that_starts_while_there_is_no_daemon_waits_for_the_next(card, tmp_path):
    """Else it would run unshared, and the limit would not hold."""
    started, go = tmp_path / "started", tmp_path / "go"
    job = " ".join(train("60M", 1))
    script = f"touch {started}; until [ -e {go} ]; do sleep 0.05; done; exec {job}"
    process = card.shared(["bash", "-c", script], "--memory", "50M")
    wait_until(started.exists, process, "the run has begun")
    process.send_signal(signal.SIGSTOP)  # only the guard, which would start another daemon
    card.daemon.send_signal(signal.SIGKILL)
    card.daemon.wait()
    go.touch()
    program = wait_until(lambda: children(process.pid), None, "the program is there")[0]

    def driver_loaded():
        return "libcuda.so" in Path(f"/proc/{program}/maps").read_text()

    wait_until(driver_loaded, None, "it has loaded the driver")
    process.send_signal(signal.SIGCONT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1 and "OUT_OF_MEMORY" in err
    assert_all_returned(card)


IMPATIENT = """
import ctypes, os, sys, time
go = sys.argv[1]
while not os.path.exists(go):
    time.sleep(0.02)
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()

def create():
    return cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0)

try:
    while cuda.cuInit(0) == 0:
        pass
    while True:
        time.sleep(0.02)  # the interpreter tells of the signal here at the latest
except KeyboardInterrupt:
    print("interrupted", create(), flush=True)
print(cuda.cuInit(0), create())
"""


def test_ctrl_c_is_heard_while_a_daemon_is_waited_for(card, tmp_path):
    """What it ends is the wait; the program is not let past its run's limit by it."""
    go = tmp_path / "go"
    process = card.shared([sys.executable, "-c", IMPATIENT, str(go)])
    program = wait_until(lambda: children(process.pid), process, "the run has begun")[0]
    process.send_signal(signal.SIGSTOP)  # only the guard, which would start another daemon
    card.daemon.send_signal(signal.SIGKILL)
    card.daemon.wait()
    go.touch()
    assert "waits for the run's next daemon" in process.stderr.readline()
    os.kill(int(program), signal.SIGINT)
    not_initialized = 3
    assert process.stdout.readline() == f"interrupted {not_initialized}\n"
    process.send_signal(signal.SIGCONT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert out == "0 0\n", err
    assert_all_returned(card)


WITHOUT_DESCRIPTORS = """
import ctypes, os, resource
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
assert cuda.cuInit(0) == 0

def create():
    return cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0)

soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
poor = create()
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print(poor, create())
"""


def test_who_cannot_connect_takes_no_memory_beside_the_others_of_its_run(card):
    process = card.shared([sys.executable, "-c", WITHOUT_DESCRIPTORS])
    out, err = process.communicate(timeout=PATIENCE_S)
    out_of_memory = 2
    assert out == f"{out_of_memory} 0\n", err
    assert_all_returned(card)


TWICE = """
import ctypes, os, sys, time
cuda, folder, name, kind = ctypes.CDLL("libcuda.so.1"), *sys.argv[1:]

class Properties(ctypes.Structure):  # of memory that is mapped: pinned, of the first device
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("place", ctypes.c_int * 2),
                ("meta_data", ctypes.c_void_p), ("flags", ctypes.c_uint8 * 8)]

class Array(ctypes.Structure):  # of bytes
    _fields_ = [("width", ctypes.c_size_t), ("height", ctypes.c_size_t), ("format", ctypes.c_int),
                ("channels", ctypes.c_uint)]

def allocate(mib):
    made, size = ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(mib << 20)
    if kind == "block":
        return cuda.cuMemAlloc_v2(made, size)
    if kind == "pool":
        return cuda.cuMemAllocAsync(made, size, None)
    if kind == "mapped":
        return cuda.cuMemCreate(made, size, ctypes.byref(Properties(1, 0, (1, 0))), ctypes.c_uint64(0))
    if kind == "managed":
        return cuda.cuMemAllocManaged(made, size, 1)
    return cuda.cuArrayCreate_v2(made, ctypes.byref(Array(1024, mib << 10, 1, 1)))

def say(what):
    open(f"{folder}/{name}-{what}", "w").close()

context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert allocate(20) == 0
say("ready")
while not os.path.exists(f"{folder}/go"):
    time.sleep(0.02)
say("asks")
os.write(1, f"result {allocate(40)}\\n".encode())
say("told")
while not all(os.path.exists(f"{folder}/{n}-told") for n in (1, 2)):
    time.sleep(0.02)  # and keeps what it has
"""


@pytest.mark.parametrize("kind", ["block", "pool", "mapped", "managed", "array"])
def test_two_of_a_run_do_not_both_take_the_last_bytes_while_there_is_no_daemon(card, tmp_path, kind):
    """Neither knows what the other takes meanwhile, so both wait for a daemon, which does."""
    script = f'for n in 1 2; do {sys.executable} -c "$0" {tmp_path} $n {kind} & done; wait'
    process = card.shared(["bash", "-c", script, TWICE], "--memory", "100M")

    def both(what):
        return wait_until(lambda: len(list(tmp_path.glob(f"?-{what}"))) == 2, process, f"both: {what}")

    both("ready")
    process.send_signal(signal.SIGSTOP)  # only the guard, which would start another daemon
    card.daemon.send_signal(signal.SIGKILL)
    card.daemon.wait()
    (tmp_path / "go").touch()
    both("asks")
    process.send_signal(signal.SIGCONT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert sorted(out.split("\n")[:2]) == ["result 0", "result 2"], err
    assert_all_returned(card)


def test_whom_the_daemon_refuses_takes_no_memory_beside_it(card, tmp_path):
    """A program of a run is one of many that were promised memory. Here it meets a daemon that has
    as many sessions as it takes."""
    made, go = "cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0)", tmp_path / "go"
    program = f"import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); print(cuda.cuInit(0), {made}, {made})"
    script = f'touch {tmp_path}/here; until [ -e {go} ]; do sleep 0.05; done; exec {sys.executable} -c "$0"'
    process = card.shared(["bash", "-c", script, program])
    wait_until((tmp_path / "here").exists, process, "the run has begun")
    process.send_signal(signal.SIGSTOP)
    card.daemon.send_signal(signal.SIGKILL)
    card.daemon.wait()
    path = card.runtime / SOCKET
    path.unlink()
    full = struct.pack("<HH", 3, 5) + text("there are too many of you")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
        server.listen()
        server.settimeout(PATIENCE_S)
        go.touch()
        refusals = 0
        while refusals < 2:
            connection, _ = server.accept()
            with connection:
                header = connection.recv(12, socket.MSG_WAITALL)  # none: it only looks who is there
                if len(header) == 12 and struct.unpack("<IHHI", header)[2] == REGISTER:
                    connection.sendall(frame(REFUSED, full))
                    refusals += 1
    path.unlink()
    process.send_signal(signal.SIGCONT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert out.split() == ["0", "2", "2"], err
    assert err.count("there are too many of you") == 1, err


IN_CAPTURE = """
import ctypes, os, sys
from ctypes import byref, c_size_t, c_ubyte
MIB = 1 << 20
cuda, context, stream = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
graph, executable = ctypes.c_void_p(), ctypes.c_void_p()

def check(result):
    assert result == 0, result

def allocate(mib):
    pointer = ctypes.c_uint64()
    check(cuda.cuMemAlloc_v2(byref(pointer), c_size_t(mib * MIB)))
    return pointer

def fill(pointer, value, mib):
    check(cuda.cuMemsetD8Async(pointer, c_ubyte(value), c_size_t(mib * MIB), stream))

def whole(pointer, value, mib):
    data = ctypes.create_string_buffer(mib * MIB)
    check(cuda.cuMemcpyDtoH_v2(data, pointer, c_size_t(mib * MIB)))
    return data.raw == bytes([value]) * (mib * MIB)

check(cuda.cuInit(0))
check(cuda.cuCtxCreate_v2(byref(context), 0, 0))
check(cuda.cuStreamCreate(byref(stream), 1))
before = allocate(100)
fill(before, 1, 100)
check(cuda.cuStreamSynchronize(stream))
relaxed = 2
check(cuda.cuStreamBeginCapture_v2(stream, relaxed))
fill(before, 2, 50)
print("captures", flush=True)
sys.stdin.readline()
added = allocate(20)
fill(added, 3, 20)
check(cuda.cuStreamEndCapture(stream, byref(graph)))
check(cuda.cuGraphInstantiateWithFlags(byref(executable), graph, ctypes.c_ulonglong(0)))
check(cuda.cuGraphLaunch(executable, stream))
check(cuda.cuStreamSynchronize(stream))
half = ctypes.c_uint64(before.value + 50 * MIB)
print(whole(before, 2, 50), whole(half, 1, 50), whole(added, 3, 20))
"""


def test_who_cannot_leave_under_the_new_daemon_gets_the_card_to_finish(card):
    """A capture hides what is under way, so the old lease's memory cannot leave; and the program
    that captures waits for more memory before it ends the capture."""
    captures = card.shared([sys.executable, "-c", IN_CAPTURE], stdin=subprocess.PIPE)
    assert captures.stdout.readline() == "captures\n"
    other = card.shared(train("120M", 2))
    wait_until(lambda: any(s["reason"] for s in card.sessions()), other, "the other one waits")
    kill_daemon(card)
    wait_until(lambda: len(card.sessions()) == 2, other, "both have come back")
    captures.stdin.write("\n")
    assert finish(captures).split() == ["True"] * 3
    finish(other)
    assert_all_returned(card)


def test_a_run_begins_though_one_daemon_after_the_other_dies(make_card):
    card = make_card()
    doomed = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    doomed.bind(str(card.runtime / SOCKET))
    doomed.listen()
    doomed.settimeout(PATIENCE_S)
    process = card.shared(train("8M", 1))
    for _ in range(5):
        connection, _ = doomed.accept()
        assert connection.recv(1)  # it has asked, and what it asked is lost
        connection.close()
    doomed.close()
    finish(process)
    assert_all_returned(card)


@pytest.mark.sanitized
def test_a_run_begins_though_its_daemon_dies_right_after_the_answer(make_card):
    card = make_card()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as doomed:
        doomed.bind(str(card.runtime / SOCKET))
        doomed.listen()
        doomed.settimeout(PATIENCE_S)
        process = card.shared(train("8M", 1))
        connection, _ = doomed.accept()
    (card.runtime / SOCKET).unlink()
    with connection:
        assert connection.recv(1)
        connection.shutdown(socket.SHUT_RD)  # it takes no more, so that the next message is not sent
        connection.sendall(frame(RUN_STARTED, struct.pack("<QQ", 4711, 200 * MIB)))
    finish(process)
    assert_all_returned(card)


class OldProgram:
    """What a program of protocol version 2 sends and takes, byte by byte."""

    READY, RUNNING, RESERVE, REGISTERED, RESERVED, GRANT = 5, 6, 2, 32, 33, 35
    LENGTHS = {REGISTERED: 24, RESERVED: 9, GRANT: 24}  # it refuses any other

    def __init__(self, card, resident):
        self.connection = card.connect()
        uuid = card.gpu()["uuid"]
        claims = struct.pack("<QQI", resident, resident, 0)
        hello = text("0.1.0") + struct.pack("<Q", 0) + text(uuid) + text("old") + claims
        self.say(REGISTER, hello)
        self.hear(self.REGISTERED)

    def say(self, kind, payload):
        self.connection.sendall(frame(kind, payload, version=2))

    def hear(self, kind):
        header = self.connection.recv(12, socket.MSG_WAITALL)
        assert struct.unpack("<IHHI", header)[1:] == (2, kind, self.LENGTHS[kind])
        return self.connection.recv(self.LENGTHS[kind], socket.MSG_WAITALL)


@pytest.mark.sanitized
def test_programs_of_the_last_version_go_on_under_a_newer_daemon(card):
    program = OldProgram(card, 0)
    program.say(program.RESERVE, struct.pack("<QQ", 1, 20 * MIB))
    assert program.hear(program.RESERVED)[8] == 1
    card.daemon.send_signal(signal.SIGKILL)
    card.daemon.wait()
    card.start_daemon()
    program = OldProgram(card, 10 * MIB)
    program.say(program.READY, struct.pack("<Q", 10 * MIB))
    epoch, credit, _ = struct.unpack("<QQQ", program.hear(program.GRANT))
    assert credit == 10 * MIB
    program.say(program.RUNNING, struct.pack("<QQ", epoch, 0))
    wait_until(lambda: [s["state"] for s in card.sessions()] == ["running"], None, "it runs")
    program.connection.close()


def children(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
