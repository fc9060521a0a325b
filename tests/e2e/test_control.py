"""People's orders: a program leaves the card in the middle of its work and comes back; limits change
under programs that run."""

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest

from harness import MIB, PATIENCE_S, TANDEM, TRAIN, DeviceProgram, finish, train, wait_until
from test_restart import kill_daemon
from test_sharing import assert_all_returned

pytestmark = pytest.mark.sanitized

CONTEXT = 2 * MIB
MEMORY = 64 * MIB  # of a DeviceProgram


@pytest.fixture
def small(make_card):
    """A card of which 54 MiB can be shared."""
    card = make_card(vram="64M", context="2M")
    card.start_daemon()
    return card


@pytest.fixture
def middle(make_card):
    """A card with room for a DeviceProgram and not much more."""
    card = make_card(vram="96M", context="2M")
    card.start_daemon()
    return card


def order(card, *words):
    """What `tandem` says to an order; the sessions it concerned."""
    return json.loads(finish(card.spawn([TANDEM, *words, "--json"])))["sessions"]


def refused(card, *words):
    process = card.spawn([TANDEM, *words])
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1, out
    return err


def at_work(card, name):
    """A program that launches kernels until it is told to stop, and what its memory comes to."""
    program = DeviceProgram(card, [TANDEM, "run", "--name", name, "--"])
    digest = program.ask("fill 1")
    assert program.ask("steady kernel 1000 2") == "running"
    return program, digest


def finishes_right(program, digest):
    assert program.ask("end") == "ended"
    assert program.ask("digest") == digest
    finish(program.process)


def test_a_suspended_program_leaves_the_card_and_finishes_right(middle):
    program, digest = at_work(middle, "mnist")
    (session,) = order(middle, "suspend", "mnist")
    assert session["state"] == "suspended" and session["swapped_bytes"] >= MEMORY
    assert middle.vram_used() == CONTEXT
    finish(middle.shared(train("40M", 2)))
    assert middle.session_of(program.process)["state"] == "suspended"  # though the card is free
    assert "suspended" in finish(middle.spawn([TANDEM, "status"]))
    (session,) = order(middle, "resume", str(session["id"]))
    assert not session["suspended"]
    finishes_right(program, digest)
    assert_all_returned(middle)


def test_suspended_outlives_the_daemon(middle):
    program, digest = at_work(middle, "mnist")
    order(middle, "suspend", "mnist")
    kill_daemon(middle)

    def suspended():
        session = middle.session_of(program.process)
        return session and session["state"] == "suspended"

    wait_until(suspended, program.process, "it has come back as it was")
    (session,) = order(middle, "resume", "mnist")  # the run's name is known again, too
    finishes_right(program, digest)
    assert_all_returned(middle)


def test_a_limit_changes_what_a_program_sees(card):
    program = DeviceProgram(card, [TANDEM, "run", "--name", "it", "--"])
    budget = card.gpu()["budget_bytes"]
    has = card.session_of(program.process)["allocated_bytes"]
    assert program.ask("free") == f"free {budget - has} {budget}"
    (session,) = order(card, "limit", "it", "--memory", "100M")
    assert session["limit_bytes"] == 100 * MIB
    assert program.ask("free") == f"free {100 * MIB - has} {100 * MIB}"
    order(card, "limit", str(session["id"]), "--memory", "16M")  # less than it has
    assert program.ask("free") == f"free 0 {16 * MIB}"
    assert program.ask("kernel 1") == "queued" and program.ask("sync") == "sync 0"
    order(card, "limit", "it", "--memory", "all")
    assert program.ask("free") == f"free {budget - has} {budget}"
    assert "257" in refused(card, "limit", "it", "--memory", "257M")


def test_a_limit_set_later_holds_for_all_a_run_starts_and_outlives_the_daemon(small, tmp_path):
    go = tmp_path / "go"
    first, second = " ".join(train("12M", 100000)), f"{TRAIN} --memory 12M --steps 1"
    script = f"{first} & until [ -e {go} ]; do sleep 0.05; done; {second}; echo second $? >&2; kill $!; wait $!; true"
    process = small.shared(["bash", "-c", script], "--name", "it")
    wait_until(lambda: [s for s in small.sessions() if s["resident_bytes"] > 10 * MIB], process, "one has its memory")
    order(small, "limit", "it", "--memory", "20M")
    kill_daemon(small)
    wait_until(lambda: [s for s in small.sessions() if s["limit_bytes"] == 20 * MIB], process, "the limit is known")
    go.touch()
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert err.count("OUT_OF_MEMORY") == 1 and "second 1" in err
    assert_all_returned(small)


def connected(process):
    """Whether it has connected to a named socket, answered or not."""
    inodes = set()
    for fd in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            inodes.add(os.readlink(fd).removeprefix("socket:[").removesuffix("]"))
    rows = (line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:])
    return any(row[6] in inodes and row[5] == "03" for row in rows)


def test_an_order_is_given_again_where_the_daemon_dies_over_it(card):
    """But not if it was for a number, which may be another program's at the next daemon."""
    program = DeviceProgram(card, [TANDEM, "run", "--name", "it", "--"])
    card.daemon.send_signal(signal.SIGSTOP)
    orders = [card.spawn([TANDEM, "limit", it, "--memory", "100M", "--json"]) for it in ("it", "1")]
    for process in orders:
        wait_until(lambda: connected(process), process, "it has called the daemon")
    card.daemon.kill()
    finish(orders[0])

    def limited():
        session = card.session_of(program.process)
        return session and session["limit_bytes"] == 100 * MIB

    wait_until(limited, program.process, "it has come back to its new limit")
    wait_until(lambda: program.ask("free").endswith(f" {100 * MIB}"), program.process, "it goes by its new limit")
    assert "tandem ps" in orders[1].communicate(timeout=PATIENCE_S)[1]
    assert orders[1].returncode == 1
    program.kill()


def test_orders_that_cannot_be_met_say_why(make_card, card):
    assert "tandem ps" in refused(card, "suspend", "nobody")
    assert "99" in refused(card, "resume", "99")
    assert "no daemon" in refused(make_card(), "suspend", "1")
    busy = DeviceProgram(card, [TANDEM, "run", "--name", "busy", "--"])
    assert busy.ask("endless") == "queued"
    err = refused(card, "suspend", "busy", "--timeout", "0")
    assert "some memory is still on the GPU; the suspension still takes effect" in err
    assert card.session_of(busy.process)["state"] == "suspending"
    order(card, "resume", "busy")
    busy.kill()
