"""Whatever happens to one program or on the socket, the others finish right and nothing leaks."""

import os
import random
import signal
import socket
import struct

import pytest

from harness import (MIB, PATIENCE_S, QUERY, REFUSED, REGISTER, TANDEM, VERSION, DeviceProgram,
                     finish, frame, receive, steps, text, train, wait_until)
from test_sharing import assert_all_returned, solo

# On the tight card, whose budget is 54 MiB: a trainer has 50 MiB, and 46 move at each switch.
LONG = train("40M", 100000)  # as good as endless: the test ends it
SHORT = train("40M", 12)
NEIGHBOUR = train("20M", steps(10))  # a program at work while the socket is under attack


@pytest.fixture
def make_tight_card(make_card):
    """Makes cards that two trainers overflow, with their daemon running: make_tight_card(bus="8GB/s",
    VARIABLE="of the daemon's environment")."""

    def make(bus="8GB/s", **environment):
        card = make_card(vram="64M", context="2M", bus=bus)
        card.env.update(environment)
        card.start_daemon()
        return card

    return make


@pytest.fixture
def expected(make_card):
    """What SHORT prints. The bus of this card is fast."""
    return solo(make_card(), SHORT)


def start_pair(card):
    """Two endless trainers that do not fit together: (holder, waiter) as they stand."""
    first, second = card.shared(LONG), card.shared(LONG)

    def roles():
        sessions = [card.session_of(first), card.session_of(second)]
        if None in sessions:
            return None
        states = [s["state"] for s in sessions]
        if sorted(states) != ["running", "waiting"]:
            return None
        pairs = [(first, sessions[0]), (second, sessions[1])]
        return pairs if states[0] == "running" else pairs[::-1]

    return wait_until(roles, first, "one runs and the other waits")


def kill(session):
    os.kill(session["pid"], signal.SIGKILL)


@pytest.mark.parametrize("victim", ["holder", "waiter"])
def test_kill_9(make_tight_card, expected, victim):
    card = make_tight_card()
    (holder, holder_session), (waiter, waiter_session) = start_pair(card)
    third = card.shared(SHORT)
    wait_until(lambda: card.session_of(third), third, "the third program has a session")
    dead, dead_session, other, other_session = (
        (holder, holder_session, waiter, waiter_session)
        if victim == "holder"
        else (waiter, waiter_session, holder, holder_session)
    )
    kill(dead_session)
    assert dead.wait(timeout=PATIENCE_S) == -signal.SIGKILL
    assert finish(third) == expected
    kill(other_session)
    other.wait(timeout=PATIENCE_S)
    wait_until(lambda: card.sessions() == [], None, "both sessions are gone")
    assert_all_returned(card)


def test_kill_9_in_the_middle_of_a_swap(make_tight_card, expected):
    card = make_tight_card(bus="40MB/s")  # 46 MiB take more than a second: the middle is easy to meet
    first = card.shared(LONG)
    wait_until(lambda: (s := card.session_of(first)) and s["state"] == "running", first, "it runs")
    second = card.shared(SHORT)

    def swapping():
        session = card.session_of(first)
        return session["credit_bytes"] + 8 * MIB < session["resident_bytes"] and session

    session = wait_until(swapping, first, "the first program is partly swapped out")
    kill(session)
    assert first.wait(timeout=PATIENCE_S) == -signal.SIGKILL
    assert finish(second) == expected
    assert_all_returned(card)


def test_kill_9_in_the_middle_of_a_restore(make_tight_card, expected):
    # A turn is by default as long as twenty switches, and such a switch takes seconds.
    card = make_tight_card(bus="40MB/s", TANDEM_TURN="500ms")
    first, second, third = card.shared(LONG), card.shared(LONG), card.shared(SHORT)

    def restoring():
        for process in (first, second):
            session = card.session_of(process)
            if session is None or session["swapped_bytes"] == 0:
                continue
            # While others still free memory, what they have freed is coming in.
            if session["state"] == "restoring" or session["reason_code"] == "memory":
                return process, session
        return None

    process, session = wait_until(restoring, first, "a program is coming back")
    kill(session)
    assert process.wait(timeout=PATIENCE_S) == -signal.SIGKILL
    assert finish(third) == expected
    for other in (first, second):
        if other.poll() is None:
            kill(card.session_of(other))
            other.wait(timeout=PATIENCE_S)
    wait_until(lambda: card.sessions() == [], None, "all sessions are gone")
    assert_all_returned(card)


def test_a_stopped_holder_keeps_its_bytes_and_goes_on_later(make_card):
    """A program that fits beside a stopped one runs, and one that does not is told why it waits. All
    finish right once it is continued."""
    card = make_card(vram="128M", context="2M")  # a budget of 118 MiB, of which the holder has 64
    card.start_daemon()
    small, large = train("20M", 3), train("60M", 3)
    alone = begin_work(card)
    expected = [to_the_end(alone)]
    finish(alone.process)
    expected += [solo(card, small), solo(card, large)]
    holder = begin_work(card, [TANDEM, "run", "--"])
    session = wait_until(
        lambda: (s := card.session_of(holder.process)) and s["state"] == "running" and s,
        holder.process, "it runs",
    )
    assert session["resident_bytes"] >= 64 * MIB
    os.kill(session["pid"], signal.SIGSTOP)
    small_finished = finish(card.shared(small))
    waiter = card.shared(large)
    told = f"session {session['id']} does not answer and keeps "
    wait_until(
        lambda: told in ((card.session_of(waiter) or {}).get("reason") or ""),
        waiter, "it is told why it waits",
    )
    os.kill(session["pid"], signal.SIGCONT)
    assert [to_the_end(holder), small_finished, finish(waiter)] == expected


def begin_work(card, prefix=()):
    """A DeviceProgram with a kernel under way."""
    program = DeviceProgram(card, prefix)
    program.ask("fill 1")
    assert program.ask("halves 1000") == "queued" and program.ask("begun") == "begun"
    return program


def to_the_end(program):
    """Lets the kernel end. The digest of the program's memory, of which the kernel has written some."""
    assert program.ask("release") == "released" and program.ask("sync") == "sync 0"
    return program.ask("digest")


def refusal(connection):
    """What the daemon says before it hangs up."""
    kind, payload = receive(connection)
    assert kind == REFUSED
    version, code, length = struct.unpack_from("<HHH", payload)
    with pytest.raises(ConnectionError):
        receive(connection)
    return code, payload[6 : 6 + length].decode()


HOSTILE = {
    "garbage": b"GET / HTTP/1.1\r\n\r\n" * 10,
    "oversized": frame(QUERY, length=1 << 30),
    "wrong length": frame(QUERY, b"\xff\xff"),
    "unknown type": frame(99, b"12"),
    "out of place": frame(9, struct.pack("<Q", 1)),
    "string beyond its end": frame(REGISTER, struct.pack("<H", 60000) + b"x" * 100),
}


@pytest.mark.sanitized
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_messages_are_refused_and_hurt_nobody(card, name):
    expected = solo(card, NEIGHBOUR)
    program = card.shared(NEIGHBOUR)
    for _ in range(20):
        with card.connect() as connection:
            connection.sendall(HOSTILE[name])
            code, reason = refusal(connection)
            assert code == 2 and reason
    assert finish(program) == expected
    assert_all_returned(card)


@pytest.mark.sanitized
def test_a_truncated_message_hurts_nobody(card):
    program = card.shared(NEIGHBOUR)
    for cut in range(1, 14):
        with card.connect() as connection:
            connection.sendall(frame(QUERY, text("status"))[:cut])
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b""  # no answer, and no wait
    finish(program)
    assert_all_returned(card)


@pytest.mark.sanitized
def test_another_version_is_told_both(card):
    with card.connect() as connection:
        connection.sendall(frame(QUERY, text("status"), version=VERSION + 8))
        code, reason = refusal(connection)
    assert code == 1
    assert str(VERSION) in reason and str(VERSION + 8) in reason


@pytest.mark.sanitized
def test_silent_and_deaf_clients_hold_nobody_up(card):
    silent = [card.connect() for _ in range(50)]
    deaf = card.connect()
    for _ in range(2000):  # asks and never reads the answers
        try:
            deaf.sendall(frame(QUERY, text("status")))
        except OSError:
            break
    finish(card.shared(NEIGHBOUR))
    for connection in [*silent, deaf]:
        connection.close()
    assert_all_returned(card)


@pytest.mark.sanitized
def test_random_bytes(card):
    seed = int(os.environ.get("TANDEM_SEED", random.randrange(1 << 32)))
    print(f"TANDEM_SEED={seed}")
    rng = random.Random(seed)
    program = card.shared(NEIGHBOUR)
    for _ in range(200):
        with card.connect() as connection:
            payload = rng.randbytes(rng.randrange(200))
            kind = rng.choice([1, 2, 5, 6, 9, 11, 64, 66, rng.randrange(1 << 16)])
            try:
                connection.sendall(frame(kind, payload))
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4096):
                    pass
            except OSError:
                pass
    finish(program)
    assert card.ask("status") is not None
    assert_all_returned(card)
