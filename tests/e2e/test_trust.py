"""No user or program loses the card to another one's death, lie or restart.

One test for each point of docs/security.md's promises; what needs a second user is skipped by name where
the tests do not run as root.
"""

import os
import re
import signal
import socket
import struct
import subprocess
import sys

import pytest

from harness import MIB, PATIENCE_S, REGISTER, SOCKET, TANDEM, DeviceProgram, finish, frame, text, train, wait_until
import harness
import users
from users import RESERVE, Session, Stranger, begin_and_wait, numbers
from test_sharing import assert_all_returned, solo

@pytest.fixture
def small_card(make_card):
    """A budget of 54 MiB."""
    card = make_card(vram="64M", context="2M")
    card.start_daemon()
    return card


def busy(card, name):
    """A program of a run that has 40 MiB of the card."""
    program = DeviceProgram(card, run_as(name), room=40 * MIB)
    program.ask("fill 1")
    return program


def run_as(name):
    return [TANDEM, "run", "--name", name, "--"]


def budget(card):
    status = card.ask("status")
    return status and status["gpus"][0]["budget_bytes"]


# ---- The budget heals


def test_the_memory_of_a_program_outside_is_there_as_soon_as_it_has_ended(small_card):
    """Not only with the next of the regular measurements."""
    card = small_card
    job = train("40M", 2)
    expected = solo(card, job)
    outside = card.bare(train("20M", 1000000))
    finish(card.shared(train("4M", 1)))  # at its end the card is measured
    wait_until(lambda: card.gpu()["foreign_bytes"] >= 20 * MIB, outside, "it is counted")
    outside.kill()
    outside.wait()
    assert finish(card.shared(job)) == expected


@pytest.mark.parametrize("back", [False, True])
def test_a_program_that_dies_after_a_restart_takes_nothing_with_it(small_card, back):
    """With its death before it has come back, and after."""
    card = small_card
    whole = budget(card)
    for _ in range(3):
        program = busy(card, "dies")
        (session,) = card.sessions()
        if not back:
            os.kill(session["pid"], signal.SIGSTOP)  # so that it does not come back
        kill_current(card)
        if back:
            wait_until(lambda: card.sessions() and card.sessions()[0]["state"] == "idle", None, "it is back")
        os.kill(session["pid"], signal.SIGKILL)
        wait_until(lambda: card.sessions() == [], None, "its end is seen")
        wait_until(lambda: budget(card) == whole, None, "the budget is whole")
        program.process.wait()
    assert card.gpu()["charged_bytes"] == 0 and card.gpu()["foreign_bytes"] == 0


def kill_current(card):
    """As kill_daemon, of the daemon that is there now."""
    old = card.ask("status")["pid"]
    os.kill(old, signal.SIGKILL)

    def successor():
        status = card.ask("status")
        return status and status["pid"] != old and status["pid"]

    return wait_until(successor, None, "another daemon answers")


def test_programs_outside_tandem_are_measured_again(small_card):
    """They take memory after the start and give it back."""
    card = small_card
    whole = budget(card)
    outside = DeviceProgram(card, room=20 * MIB)
    outside.ask("fill 1")
    short = DeviceProgram(card, run_as("short"), room=8 * MIB)
    short.process.stdin.close()  # its end is when the card is asked
    short.process.wait(timeout=PATIENCE_S)
    wait_until(lambda: budget(card) <= whole - 20 * MIB, None, "the budget follows")
    assert card.gpu()["foreign_bytes"] >= 20 * MIB
    outside.process.kill()
    outside.process.wait()
    short = DeviceProgram(card, run_as("short"), room=8 * MIB)
    short.process.stdin.close()
    short.process.wait(timeout=PATIENCE_S)
    wait_until(lambda: budget(card) == whole, None, "and back")


def test_a_stopped_program_keeps_its_bytes_through_a_restart(small_card):
    card = small_card
    job = train("40M", 3)
    expected = solo(card, job)
    stopped = busy(card, "stopped")
    digest = stopped.ask("digest")
    (session,) = card.sessions()
    os.kill(session["pid"], signal.SIGSTOP)
    kill_current(card)
    assert [s["id"] for s in card.sessions()] == [session["id"]]
    late = card.shared(job)  # 50 of the 54 MiB, of which 14 are free
    wait_until(lambda: any(s["state"] == "waiting" for s in card.sessions()), late, "it waits")
    assert card.gpu()["charged_bytes"] <= budget(card) + 2 * MIB
    os.kill(session["pid"], signal.SIGCONT)
    assert finish(late) == expected
    assert stopped.ask("digest") == digest
    stopped.process.stdin.close()
    stopped.process.wait(timeout=PATIENCE_S)
    assert_all_returned(card)


LIAR = """
import os, socket, struct, sys
path, kind, hello = sys.argv[1], int(sys.argv[2]), bytes.fromhex(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
connection = socket.socket(socket.AF_UNIX)
connection.connect(path)
connection.sendall(hello)
print(struct.unpack("<IHHI", connection.recv(12, socket.MSG_WAITALL))[2], flush=True)
sys.stdin.readline()
"""


def test_claims_of_a_program_that_had_nothing_count_for_nothing(small_card):
    """It is older than the daemon, and claims all of the card and of the host."""
    card = small_card
    whole, device = budget(card), card.gpu()["uuid"]
    resident, fixed, allocated = 180 * MIB, 1 << 40, 1 << 50
    claims = struct.pack("<QQIBQBB", allocated, resident, 64, 0, fixed, 2, 0)
    hello = frame(REGISTER, text("0.1") + struct.pack("<Q", 0) + text(device) + text("liar") + claims)
    liar = subprocess.Popen(
        [sys.executable, "-c", LIAR, card.runtime / SOCKET, str(REGISTER), hello.hex()],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    card.processes.append(liar)
    assert liar.stdout.readline() == "ready\n"
    holder = busy(card, "holder")  # its guard starts the next daemon
    kill_current(card)
    liar.stdin.write("\n")
    liar.stdin.flush()
    registered = 32
    assert int(liar.stdout.readline()) == registered
    lies = [s for s in card.sessions() if s["program"] == "liar"]
    assert [(s["allocated_bytes"], s["fixed_bytes"], s["contexts"]) for s in lies] == [(0, 0, 0)]
    assert budget(card) == whole and card.gpu()["charged_bytes"] <= 42 * MIB
    assert card.ask("status")["host_promised_bytes"] <= 42 * MIB
    liar.kill()
    liar.wait()
    wait_until(lambda: len(card.sessions()) == 1, None, "its end is seen")
    assert budget(card) == whole
    assert holder.ask("digest")


# ---- One user does not starve another


@pytest.mark.parametrize("how", ["stops", "never ends"])
def test_a_program_that_keeps_the_card_is_named_and_ended(make_card, how):
    """A stopped one does not answer at all; the work of the other never ends, and it says that it is busy."""
    card = make_card(vram="64M", context="2M")
    log = card.runtime / "log"
    card.start_daemon("--longest-block", "8s", "--log", log)
    keeper = busy(card, "keeper")
    if how == "never ends":
        assert keeper.ask("kernel 2000000000") == "queued"
    (session,) = card.sessions()
    if how == "stops":
        os.kill(session["pid"], signal.SIGSTOP)
    waiter = card.shared(train("40M", 3))
    wait_until(lambda: card.gpu()["blocked_by"], waiter, "it is named")
    (named,) = [s for s in card.sessions() if s["blocks_since"]]
    assert named["id"] == session["id"] and card.gpu()["blocked_by"] == [session["id"]]
    assert "keeps others waiting" in named["reason"] and named["reason_code"] == "blocks_others"
    assert "is ended after 8 s" in card.tandem("ps")
    assert f"blocked by  {session['id']}," in card.tandem("status")
    assert finish(waiter)
    assert keeper.process.wait(timeout=PATIENCE_S) != 0
    assert "keeper is ended: it kept gpu0 from others for 8 s" in keeper.process.stderr.read()
    assert "has kept gpu0 from others for 8 s (--longest-block)" in log.read_text()
    assert_all_returned(card)


def hoard(sessions, line):
    """As the stranger: as many silent sessions, each of a process of its own, that promise themselves all that
    they are given. Says how much that is, and waits."""
    scene = hoard.scene
    device, granted, children = scene.device(), 0, []
    for _ in range(sessions):
        theirs, ours = socket.socketpair()
        child = os.fork()
        if child == 0:
            session = Session(scene, device)
            mine = 0
            for step in (100 * MIB, 10 * MIB, MIB):
                while reserve(session, mine + step):
                    mine += step
            ours.sendall(struct.pack("<Q", mine))
            signal.pause()
        ours.close()
        granted += struct.unpack("<Q", theirs.recv(8, socket.MSG_WAITALL))[0]
        children.append(child)
    begin_and_wait(line)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return granted


def pass_on(sends_itself):
    """Connects, and has a child register in this process's name, or does so itself. What the daemon answers."""
    scene = pass_on.scene
    connection, hello = scene.connect(), users.register(scene.device())
    if sends_itself:
        connection.sendall(hello)
    else:
        child = os.fork()
        if child == 0:
            connection.sendall(hello)
            os._exit(0)
        os.waitpid(child, 0)
    return users.receive(connection)


def test_a_socket_that_was_passed_on_registers_no_session():
    """It would show the process that had connected, which may be another user's."""
    if not users.can_be_others():
        pytest.skip("needs root, to be two users")
    scene = pass_on.scene = users.Scene()
    try:
        kind, payload = users.as_stranger(pass_on, False)
        assert kind == harness.REFUSED and b"only the process that connected can register" in payload
        assert users.as_stranger(pass_on, True)[0] == users.REGISTERED
        scene.assert_unharmed()
    finally:
        scene.close()


RESERVED = 33  # of src/wire/messages.h


def reserve(session, total):
    session.say(numbers(RESERVE, 1, total))
    while (message := session.hear())[0] != RESERVED:
        pass
    return message[1][8] == 1


def test_a_user_who_promises_himself_everything_leaves_others_room():
    if not users.can_be_others():
        pytest.skip("needs root, to be two users")
    host_memory = 512 * MIB
    scene = users.Scene(host_memory, spill=None)
    hoard.scene = scene
    hoarder = Stranger(hoard, 10, line=True)
    try:
        hoarder.await_begin()
        theirs = [s for s in scene.card.sessions() if s["uid"] == users.STRANGER]
        assert len(theirs) == 10 and sum(s["allocated_bytes"] for s in theirs) > 300 * MIB
        promised = sum(s["host_share_bytes"] for s in theirs)
        assert 0.6 * host_memory < promised < 0.81 * host_memory, "others have a fifth at least"
        # Another program of the victim's: it needs host memory, for itself or for the first one.
        job = [str(scene.bin / "train"), *train("40M", 3)[1:]]
        env = {**scene.card.env, "LD_LIBRARY_PATH": str(scene.soft_gpu)}
        done = finish(scene.card.spawn(scene.as_victim("run", "--", *job), env=env))
        assert done == finish(scene.card.bare(train("40M", 3)))
        scene.assert_unharmed()
        assert hoarder.outcome() > 300 * MIB
    finally:
        hoarder.end()
        scene.close()


def test_what_root_orders_binds_and_every_order_is_in_the_log():
    if not users.can_be_others():
        pytest.skip("needs root, to be two users")
    scene = users.Scene()
    try:
        number = str(scene.session()["id"])
        scene.card.tandem("suspend", number)
        wait_until(lambda: scene.session()["state"] == "suspended", None, "root suspends it")
        assert scene.session()["suspended_by_uid"] == 0
        refused = scene.card.spawn(scene.as_victim("resume", number))
        assert "root has suspended" in refused.communicate(timeout=PATIENCE_S)[1] and refused.returncode != 0
        refused = scene.card.spawn(scene.as_victim("suspend", number, uid=users.STRANGER))
        assert refused.wait(timeout=PATIENCE_S) != 0
        assert scene.session()["suspended"]
        scene.card.tandem("resume", number)
        wait_until(lambda: not scene.session()["suspended"], None, "root resumes it")
        orders = [line for line in scene.log.read_text().splitlines() if "order" in line]
        for uid, what, result in ((0, "suspend", "obeyed"), (users.VICTIM, "resume", "refused"),
                                  (users.STRANGER, "suspend", "refused"), (0, "resume", "obeyed")):  # fmt: skip
            assert any(re.search(rf"user {uid}\b", line) and what in line and result in line for line in orders), orders
        scene.assert_unharmed()
    finally:
        scene.close()


HIDDEN = {"an overlong slash": b"\xc0\xaf", "a surrogate": b"\xed\xa0\x80", "U+061C": "\u061c".encode(),
          "U+FEFF": "\ufeff".encode(), "a tag": "\U000e0041".encode(), "marks": ("a" + "\u0301" * 40).encode()}  # fmt: skip


@pytest.mark.parametrize("hidden", HIDDEN)
def test_no_name_hides_or_changes_what_is_shown(small_card, hidden):
    name = b"me" + HIDDEN[hidden]
    run = small_card.spawn([TANDEM, "run", "--name", os.fsdecode(name), "--", "sleep", "1000"])
    ask = [TANDEM, "ps"]
    wait_until(lambda: "me" in finish(small_card.spawn(ask)), run, "it is listed")
    shown = subprocess.run(ask, env=small_card.env, capture_output=True, check=True, timeout=PATIENCE_S).stdout
    assert HIDDEN[hidden] not in shown and b"\\" in shown.split(b"me", 1)[1]
    run.kill()


@pytest.mark.parametrize(("of_class", "counts"), [("production", "10"), ("batch", "0"), ("opportunistic", "-10")])
def test_a_priority_of_the_environment_counts_no_more_than_the_class(small_card, of_class, counts):
    program = [TANDEM, "run", "--class", of_class, "--", "printenv", "TANDEM_SOFT_PRIORITY"]
    env = {**small_card.env, "TANDEM_SOFT_PRIORITY": "100"}
    assert finish(small_card.spawn(program, env=env)) == counts + "\n"


# ---- The daemon as a service


def test_numbers_of_sessions_go_on_after_a_restart(small_card):
    card = small_card
    first = busy(card, "first")
    (before,) = card.sessions()
    kill_current(card)
    wait_until(lambda: [s["id"] for s in card.sessions()] == [before["id"]], None, "it has its number")
    second = busy(card, "second")
    assert [s["id"] for s in card.sessions()] == [before["id"], before["id"] + 1]
    for program in (first, second):
        program.process.stdin.close()
        program.process.wait(timeout=PATIENCE_S)
    kill = card.ask("status")["pid"]
    os.kill(kill, signal.SIGKILL)
    third = busy(card, "third")
    assert [s["id"] for s in card.sessions()] == [before["id"] + 2]
    third.process.stdin.close()
