"""Two users at one card: a stranger who asks without end, and daemons that are not what they seem to be.
The victim's program keeps what it has, goes on, and ends right."""

import contextlib
import itertools
import os
import socket
import struct
import threading

import pytest

import users
from harness import PATIENCE_S, QUERY, SOCKET, finish, frame, text, wait_until
from scene_fixtures import unharmed  # noqa: F401
from users import (
    EVICT, EVICTED, FIXED_WANTED, GRANT, IDLE, NAME, READY, RELEASED, RESERVE, REVOKE, RUNNING,
    STRANGER, VICTIM, Session, Stranger, begin_and_wait, numbers,
)  # fmt: skip

pytestmark = pytest.mark.skipif(not users.can_be_others(), reason="needs root, to be two users")


# ---- Floods


def open_many(scene, count, first_words):
    """As many connections as the daemon keeps of `count`, each of which has said first_words."""
    kept = []
    for _ in range(count):
        connection = scene.connect()
        with contextlib.suppress(OSError):
            connection.sendall(first_words)
        kept.append(connection)
    return kept


def alive(connections):
    """Those that the daemon has not closed."""

    def is_open(connection):
        connection.setblocking(False)
        try:
            while connection.recv(1 << 16):
                pass
        except BlockingIOError:
            return True
        except ConnectionResetError:
            pass
        return False

    return sum(is_open(connection) for connection in connections)


@pytest.mark.parametrize("words", ["nothing", "half", "a question"])
def test_a_flood_of_connections_keeps_nobody_out(scene, words):
    first = {"nothing": b"", "half": frame(QUERY, text("status"))[:13], "a question": frame(QUERY, text("status"))}

    def flood(line):
        kept = open_many(scene, 1500, first[words])
        begin_and_wait(line)
        return alive(kept)

    stranger = Stranger(flood, line=True)
    stranger.await_begin()
    # Others still come in: its owner's order, a new program.
    assert scene.order("resume", NAME)[0]["uid"] == VICTIM
    train = scene.as_victim("run", "--", str(scene.bin / "train"), "--memory", "8M", "--steps", "2")
    finish(scene.card.spawn(train))
    assert stranger.outcome() <= (1024 if words == "a question" else 128)


def storm(scene, device, budget):
    """Wishes for the whole card again and again, asks for everything else there is, and does what it
    is told at once. Until it is ended."""
    session = Session(scene, device)

    def obey():
        while True:
            kind, payload = session.hear()
            first = struct.unpack_from("<Q", payload)[0] if len(payload) >= 8 else 0
            if kind == GRANT:
                session.say(numbers(RUNNING, first, 0))
            elif kind == REVOKE:
                session.say(numbers(RELEASED, first) + numbers(READY, budget))
            elif kind == EVICT:
                session.say(numbers(EVICTED, first, 0))

    threading.Thread(target=obey, daemon=True).start()
    for sequence in itertools.count(1):
        wishes = [(RESERVE, sequence, budget), (READY, budget), (FIXED_WANTED, sequence, budget), (IDLE, sequence)]
        session.say(b"".join(numbers(*wish) for wish in wishes))


def ask_without_end(scene):
    connection = scene.connect()
    question = frame(QUERY, text("sessions")) * 100
    threading.Thread(target=lambda: [connection.recv(1 << 20) for _ in iter(int, 1)], daemon=True).start()
    while True:
        connection.sendall(question)


def test_a_storm_of_wishes_leaves_the_victim_its_turns(scene):
    budget = scene.card.gpu()["budget_bytes"]
    strangers = [Stranger(storm, scene, scene.device(), budget) for _ in range(3)]
    strangers += [Stranger(ask_without_end, scene) for _ in range(2)]
    try:
        wait_until(lambda: sum(s["leases"] > 0 for s in scene.card.sessions() if s["uid"] == STRANGER) == 3,
                   None, "the strangers have their turns")  # fmt: skip
        for _ in range(3):
            scene.assert_unharmed()
    finally:
        for stranger in strangers:
            stranger.end()
    wait_until(lambda: len(scene.card.sessions()) == 1, None, "the strangers' sessions are gone")


# ---- Daemons


def test_another_users_daemon_is_not_believed(scene):
    """Only root can put a daemon where all users look."""
    place = scene.root / "stranger"
    place.mkdir()
    os.chown(place, STRANGER, STRANGER)
    place.chmod(0o711)

    def pose(line):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(place / SOCKET))
            os.chmod(place / SOCKET, 0o666)
            listener.listen()
            begin_and_wait(line)

    stranger = Stranger(pose, line=True)
    stranger.await_begin()
    env = {**scene.card.env, "TANDEM_RUNTIME_DIR": str(place)}
    _, err = scene.card.spawn(scene.as_victim("ps"), env=env).communicate(timeout=PATIENCE_S)
    assert f"runs as user {STRANGER}, neither root nor you" in err
    stranger.outcome()
    for flags in ([], ["--everybody"]):
        argv = scene.as_victim(uid=STRANGER)[:-1] + [str(scene.bin / "tandemd"), *flags]
        process = scene.card.spawn(argv)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 1 and ("of your own" in err or "only root" in err)


def test_a_daemon_that_does_not_come_up_opens_nothing(scene):
    """Else all users would look there for one, and start none of their own."""
    place = scene.root / "closed"
    env = {**scene.card.env, "TANDEM_RUNTIME_DIR": str(place)}
    argv = [str(scene.bin / "tandemd"), "--everybody", "--devices-json", str(scene.root / "missing")]
    process = scene.card.spawn(argv, env=env)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1 and "missing" in err
    assert place.stat().st_mode & 0o777 == 0o700


def test_programs_find_roots_next_daemon(scene):
    """Their guards cannot start one; and it serves all users without being told again."""
    budget = scene.card.gpu()["budget_bytes"]
    scene.daemon.kill()
    scene.daemon.wait()
    said = finish(scene.card.spawn(scene.as_victim("ps")))
    assert "root starts one" in said
    scene.start_daemon()
    wait_until(lambda: [s for s in scene.card.sessions() if s["name"] == NAME], None, "the victim and its run are back")
    wait_until(lambda: scene.card.gpu()["budget_bytes"] == budget, None, "nothing is taken for strangers'")
