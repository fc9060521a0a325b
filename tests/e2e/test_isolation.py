"""Two users at one card: whatever a stranger tries, the victim's program has its bytes to itself,
keeps what it has, goes on, and ends right. One victim lives through all of it."""

import contextlib
import ctypes
import fcntl
import json
import mmap
import os
import random
import signal
import socket
import struct
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import users
from harness import MIB, PATIENCE_S, REFUSED, SANITIZED, SOCKET, frame, receive, text, wait_until
from scene_fixtures import unharmed  # noqa: F401
from users import (
    ACTIVE, BUSY, CONTEXT_GONE, EVICTED, FIXED_GONE, FIXED_WANTED, GRANT, IDLE, KINDS, MEMORY, NAME,
    NOT_YOURS, OFFER, READY, REGISTER, REGISTERED, RELEASED, RESERVE, RUN_BEGIN, RUN_QUERY, RUNNING,
    STRANGER, UNKNOWN_TARGET, VICTIM, Session, as_stranger, control, numbers, refusal_code,
)  # fmt: skip

pytestmark = pytest.mark.skipif(not users.can_be_others(), reason="needs root, to be two users")

libc = ctypes.CDLL(None, use_errno=True)
NR_PIDFD_OPEN, NR_PIDFD_GETFD, NR_PIDFD_SEND_SIGNAL, NR_PROCESS_VM_READV = 434, 438, 424, 310  # x86-64
PTRACE_SEIZE = 0x4206
F_ADD_SEALS, F_SEAL_WRITE = 1033, 8
FALLOC_PUNCH_HOLE = 3  # with KEEP_SIZE


# ---- Bytes


def opened(paths):
    """Those of the paths that this process may open to read, and those of them that it may write."""
    readable, writable = [], []
    for path in paths:
        for flags, found in ((os.O_RDONLY, readable), (os.O_RDWR, writable)):
            with contextlib.suppress(OSError):
                os.close(os.open(path, flags | os.O_NONBLOCK))
                found.append(str(path))
    return readable, writable


def ways_into(pid):
    """Which of the kernel's ways into another process are open to this one."""
    files = [f"/proc/{pid}/{name}" for name in ("mem", "maps", "smaps", "pagemap", "environ", "auxv", "io", "stack")]
    found = list(opened(files)[0])
    for name in ("fd", "map_files", "cwd", "root", "exe"):
        with contextlib.suppress(OSError):
            os.readlink(f"/proc/{pid}/{name}") if name in ("cwd", "root", "exe") else os.listdir(f"/proc/{pid}/{name}")
            found.append(f"/proc/{pid}/{name}")
    byte = ctypes.create_string_buffer(8)
    local = (ctypes.c_size_t * 2)(ctypes.addressof(byte), 8)
    remote = (ctypes.c_size_t * 2)(0x400000, 8)
    if libc.syscall(NR_PROCESS_VM_READV, pid, local, ctypes.c_ulong(1), remote, ctypes.c_ulong(1), 0) >= 0:
        found.append("process_vm_readv")
    if libc.ptrace(PTRACE_SEIZE, pid, None, None) == 0:
        found.append("ptrace")
    handle = libc.syscall(NR_PIDFD_OPEN, pid, 0)
    for fd in range(64):
        if libc.syscall(NR_PIDFD_GETFD, handle, fd, 0) >= 0:
            found.append(f"descriptor {fd}")
    return found


def files_with(pattern, places):
    """Files below the places that this process can read and that hold the pattern."""
    found = []
    for place in places:
        for directory, _, names in os.walk(place):
            for path in [Path(directory) / name for name in names]:
                with contextlib.suppress(OSError):
                    if path.is_file() and pattern in path.read_bytes():
                        found.append(str(path))
    return found


def test_swapped_bytes_are_the_victims_alone(scene):
    (session,) = scene.order("suspend", NAME)
    assert session["swapped_bytes"] >= MEMORY and session["host_file_bytes"] >= MEMORY // 2
    for pid in scene.pids():
        assert as_stranger(ways_into, pid) == []
    places = [scene.card.soft, scene.card.runtime, scene.root / "victims", scene.spill, "/dev/shm"]
    assert as_stranger(files_with, scene.pattern, places) == []
    # The search does find what can be read: the device's file, which says who has how much.
    assert as_stranger(files_with, b"TNDMSGPU", places) == [str(scene.card.soft / "tandem-soft-gpu0")]
    scene.order("resume", NAME)


def test_a_spill_file_belongs_to_its_programs_user(scene):
    """So that a disk quota counts it for that user."""
    device = scene.device()

    def look():
        with scene.connect() as connection:
            claims = struct.pack("<QQIBQBB", 0, 0, 0, 0, 0, 0, 1)
            connection.sendall(
                frame(REGISTER, text("0.1") + struct.pack("<Q", 0) + text(device) + text("stranger") + claims)
            )
            _, fds, _, _ = socket.recv_fds(connection, 1, 3)
            status = os.fstat(fds[2])
            return status.st_uid, status.st_gid, status.st_mode & 0o777, status.st_nlink

    assert as_stranger(look) == (STRANGER, STRANGER, 0o600, 0)


def test_the_daemons_directory_has_a_way_through_and_nothing_else(scene):
    directory = scene.card.runtime

    def look():
        listed = []
        with contextlib.suppress(PermissionError):
            listed = os.listdir(directory)
        made = []
        for name in ("new", "tandemd.sock"):
            with contextlib.suppress(PermissionError):
                (directory / name).touch(exist_ok=False)
                made.append(name)
        for act in (lambda: os.unlink(directory / SOCKET), lambda: os.rename(directory / SOCKET, directory / "x")):
            with contextlib.suppress(PermissionError):
                act()
                made.append("changed")
        names = (f"{SOCKET}.lock", "tandemd-soft.log", "tandemd-soft.json", "tandemd-soft.runs", "tandemd-soft.sessions")
        return listed, made, opened([directory / name for name in names])

    (directory / "tandemd-soft.log").touch(mode=0o600)
    assert as_stranger(look) == ([], [], ([], []))
    private = scene.own_directory
    assert private.is_dir() and as_stranger(opened, [private / "tandemd-soft.runs"]) == ([], [])


def test_the_pages_of_a_session_can_only_be_used_as_meant(scene):
    def attack(device):
        decisions, reports = Session(scene, device).fds
        done = []

        def attempt(what, act):
            with contextlib.suppress(OSError):
                act()
                done.append(what)

        for what, fd in (("its", decisions), ("reopened", os.open(f"/proc/self/fd/{decisions}", os.O_RDONLY))):
            attempt(f"map {what}", lambda fd=fd: mmap.mmap(fd, 4096, mmap.MAP_SHARED, mmap.PROT_WRITE))
        attempt("write", lambda: os.pwrite(decisions, b"x", 0))
        attempt("punch", lambda: call(libc.fallocate(decisions, FALLOC_PUNCH_HOLE, ctypes.c_long(0), ctypes.c_long(4096))))
        seen = mmap.mmap(decisions, 4096, mmap.MAP_SHARED, mmap.PROT_READ)
        address = int(next(line for line in Path("/proc/self/maps").read_text().splitlines()
                           if "tandem-decisions" in line).split("-")[0], 16)  # fmt: skip
        attempt("mprotect", lambda: call(libc.mprotect(ctypes.c_void_p(address), 4096, mmap.PROT_WRITE | mmap.PROT_READ)))
        for fd in (decisions, reports):
            attempt("resize", lambda fd=fd: os.ftruncate(fd, 0))
            attempt("seal", lambda fd=fd: call(libc.fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE)))
        with contextlib.suppress(OSError):
            writable = os.open(f"/proc/self/fd/{decisions}", os.O_RDWR)
            attempt("map what was reopened to write", lambda: mmap.mmap(writable, 4096))
            attempt("write what was reopened", lambda: os.pwrite(writable, b"x", 0))
        # What may be written is taken for a claim.
        claims = mmap.mmap(reports, 4096)
        claims[:] = b"\xff" * 4096
        mine = [s for s in scene.card.sessions() if s["uid"] == STRANGER]
        return done, seen[:8], [(s["resident_bytes"], s["swapped_bytes"]) for s in mine]

    assert as_stranger(attack, scene.device()) == ([], b"TandDec1", [(0, 0)])


def call(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), "refused")


# ---- Words


def test_orders_are_the_owners_and_roots(scene):
    session = scene.session()
    for words in (["suspend", NAME], ["resume", str(session["id"])], ["limit", NAME, "--memory", "1M"]):
        process = scene.card.spawn(scene.as_victim(*words, uid=STRANGER))
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 1 and f"belongs to user {VICTIM}" in err

    def order_by_token(token):
        with scene.connect() as connection:
            connection.sendall(control("suspend", str(token)))
            return refusal_code(receive(connection)[1])

    assert as_stranger(order_by_token, session["run"]) == NOT_YOURS


def test_others_are_listed_and_their_tokens_are_not(scene):
    def listed():
        (session,) = [s for s in scene.card.sessions() if s["name"] == NAME]
        return session

    token = scene.session()["run"]
    seen = as_stranger(listed)
    assert isinstance(token, int) and seen["run"] is None
    assert seen["uid"] == VICTIM and seen["allocated_bytes"] >= MEMORY


@pytest.mark.skipif(SANITIZED, reason="tandem serve is not built there")
def test_privacy_of_a_server_is_from_real_users(scene):
    """What another user's `tandem serve --privacy` answers about the victim's program."""
    paths = ("/api/v1/gpus", "/api/v1/sessions", "/metrics", "/api/v1/events")

    def answers(*flags):
        argv = [*scene.as_victim("serve", "--json", "--listen", "127.0.0.1:0", *flags, uid=STRANGER)]
        server = scene.card.spawn(argv)
        url = json.loads(server.stdout.readline())["url"].rstrip("/")
        texts = {}
        for path in paths:
            with contextlib.suppress(urllib.error.HTTPError):  # what that user may not read at all
                texts[path] = urllib.request.urlopen(url + path, timeout=PATIENCE_S).read().decode()
        server.terminate()
        server.wait(timeout=PATIENCE_S)
        return texts

    session = scene.session()
    secrets = (NAME, session["program"], f'"pid":{session["pid"]},', f'"pid": {session["pid"]},')
    private, public = answers("--privacy"), answers()
    assert {"/api/v1/gpus", "/api/v1/sessions", "/metrics"} <= set(private)
    assert not [(path, secret) for path, text in private.items() for secret in secrets if secret in text]
    (hidden,) = json.loads(private["/api/v1/sessions"])["sessions"]
    assert (hidden["uid"], hidden["name"], hidden["pid"]) == (VICTIM, "(hidden)", None)
    assert NAME in public["/api/v1/sessions"] and NAME in public["/metrics"]


def test_a_runs_token_is_worth_nothing_to_others(scene):
    token, free = scene.session()["run"], scene.program.ask("free")

    def use(token, device):
        with scene.connect() as connection:
            connection.sendall(frame(RUN_QUERY, struct.pack("<Q", token) + text(device)))
            shown = refusal_code(receive(connection)[1])
        guard = scene.connect()
        begin = text("0.1") + text(NAME) + text("x") + struct.pack("<QQB", MIB, token, 1)
        guard.sendall(frame(RUN_BEGIN, begin))
        begun = struct.unpack("<QQ", receive(guard)[1])
        session = Session(scene, device, token)
        session.say(numbers(RESERVE, 1, MIB))
        granted = session.hear()[1][-1]
        limit = struct.unpack_from("<QQ", session.payload)[1]
        return shown, begun, session.kind, limit, granted, scene.card.sessions()

    shown, begun, kind, limit, granted, sessions = as_stranger(use, token, scene.device())
    assert shown == UNKNOWN_TARGET
    # It has opened a run of its own that bears the same number, with the limit that it asked for.
    assert begun == (token, MIB) and kind == REGISTERED and limit == MIB and granted == 1
    (victim,) = [s for s in sessions if s["uid"] == VICTIM]
    assert not victim["suspended"] and victim["limit_bytes"] == scene.card.gpu()["budget_bytes"]
    assert scene.program.ask("free") == free
    (session,) = scene.order("resume", NAME)
    assert session["uid"] == VICTIM


def forged_words(epochs):
    """Everything that a session can say, about whatever leases there may be."""
    for epoch in epochs:
        for kind in (IDLE, ACTIVE, RELEASED, BUSY):
            yield numbers(kind, epoch)
        yield numbers(RUNNING, epoch, 1 << 62)
    yield numbers(EVICTED, 0, MEMORY)
    yield numbers(FIXED_WANTED, 1, 1 << 63)
    yield numbers(RESERVE, 1, (1 << 64) - 1)


def test_words_about_anothers_lease_are_about_ones_own(scene):
    assert scene.program.ask("steady kernel 1000 2") == "running"
    before = scene.session()
    assert before["state"] == "running"

    def forge(device):
        session = Session(scene, device)
        session.say(*forged_words(range(64)))
        answers = [session.hear()[0] for _ in range(2)]  # to what can be answered
        return answers

    assert len(as_stranger(forge, scene.device())) == 2
    after = scene.session()
    for field in ("id", "state", "leases", "credit_bytes", "allocated_bytes", "limit_bytes"):
        assert after[field] == before[field], field
    assert scene.program.ask("end") == "ended"


def test_lies_end_the_liars_connection_only(scene):
    def lie(device):
        refused = []
        for word in (numbers(EVICTED, (1 << 64) - 1, 0), numbers(FIXED_GONE, 1), frame(CONTEXT_GONE),
                     numbers(READY, (1 << 64) - 1), numbers(GRANT, 1, 1, 1)):  # fmt: skip
            session = Session(scene, device)
            session.say(word)
            refused.append(session.hear()[0])
        return refused

    assert as_stranger(lie, scene.device()) == [REFUSED] * 5


def test_nobody_else_ends_or_stops_a_process(scene):
    def attack(pids):
        done = []
        for pid in pids:
            for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
                with contextlib.suppress(PermissionError):
                    os.kill(pid, number)
                    done.append((pid, number))
                handle = libc.syscall(NR_PIDFD_OPEN, pid, 0)
                if libc.syscall(NR_PIDFD_SEND_SIGNAL, handle, number, None, 0) == 0:
                    done.append((pid, number))
        return done

    assert as_stranger(attack, scene.pids()) == []


def test_random_words_hurt_nobody(scene):
    """Of every kind that there is, nor what comes with them."""
    seed = int(os.environ.get("TANDEM_SEED", random.randrange(1 << 32)))
    print(f"TANDEM_SEED={seed}")
    told = scene.daemon.pid

    def held():
        return len(os.listdir(f"/proc/{told}/fd"))

    # Of the question that came last the daemon may have a connection yet, which is closed here already.
    before = min(held() for _ in range(1000))

    def rage(device, token):
        rng = random.Random(seed)
        amounts = [0, 1, MIB, MEMORY, (1 << 63), (1 << 64) - 1, token]
        memory = os.memfd_create("memory", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)  # then the daemon takes it for a card's
        fds = [memory, *os.pipe(), os.open("/dev/null", os.O_RDONLY)]
        for _ in range(150):
            with contextlib.suppress(OSError), scene.connect() as beside:
                session = Session(scene, device, rng.choice([0, token, 7]))
                offer = struct.pack("<QQ", token, token) + text(device)
                socket.send_fds(beside, [frame(OFFER, offer)], [memory])
                for _ in range(rng.randrange(20)):
                    fields = [rng.choice(amounts) for _ in range(rng.randrange(4))]
                    words = struct.pack(f"<{len(fields)}Q", *fields) + rng.choice([b"", text(device)])
                    connection = rng.choice([session.connection, beside])
                    sent = rng.choices(fds, k=rng.choice([0, 1, 3, 253]))
                    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                        socket.send_fds(connection, [frame(rng.choice(KINDS), words)], sent)
                session.connection.shutdown(socket.SHUT_WR)
                session.connection.close()
                for fd in session.fds:
                    os.close(fd)

    as_stranger(rage, scene.device(), scene.session()["run"])
    assert scene.card.ask("status")["pid"] == told
    wait_until(lambda: held() <= before, None, "the daemon has let go of everything")
