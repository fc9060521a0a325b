"""Why is my job not running? `tandem ps`, `tandem top` and the server of the page answer, for real programs in
each situation of the table in docs/use.md."""

import contextlib
import os
import re
import signal

import pytest

from harness import MIB, SANITIZED, TANDEM, DeviceProgram, finish, train, wait_until
from serving import Serve
from test_oversubscribe import LargeProgram
from test_trust import kill_current

pytestmark = pytest.mark.skipif(SANITIZED, reason="tandem serve is not built there")


class Answers:
    """What a person sees about a run, at a terminal and on the page."""

    def __init__(self, card):
        self.card = card
        self.serve = Serve(card)

    def code(self, name):
        """Of the run's only session, in `tandem ps --json`; None without a daemon."""
        sessions = self.card.ask("sessions")
        mine = [s for s in (sessions or {"sessions": []})["sessions"] if s["name"] == name]
        return mine[0]["reason_code"] if mine else None

    def wait_for(self, name, code, process):
        wait_until(lambda: self.code(name) == code, process, f"{name} has the reason {code}")

    def check(self, name, code, text, state=None):
        """`ps` and `top` say `text`, a regular expression; the page's words come from the code."""
        pattern = re.compile(text)
        for words in (("ps",), ("top", "--once")):
            lines = [line for line in self.card.tandem(*words).splitlines() if f" {name} " in line]
            assert any(pattern.search(line) for line in lines), (words, lines)
        (shown,) = [s for s in self.serve.get("/api/v1/sessions")["sessions"] if s["name"] == name]
        assert shown["reason_code"] == code and shown["reason"], shown
        assert state in (None, shown["state"]), shown


@pytest.fixture
def card(make_card):
    card = make_card(vram="96M", context="2M")
    card.env["COLUMNS"] = "200"
    return card


@contextlib.contextmanager
def holder(card):
    """A program that works until it is killed, under a policy that interrupts no holder."""
    finish(card.spawn([TANDEM, "policy", "gpu0", "fcfs"]))
    program = DeviceProgram(card, [TANDEM, "run", "--name", "film", "--"])
    program.ask("fill 1")
    assert program.ask("endless") == "queued"
    assert program.ask("begun") == "begun"
    yield program
    program.kill()


def test_others_are_before_it(card):
    card.start_daemon()
    answers = Answers(card)
    with holder(card):
        waiter = card.shared(train("64M", 3), "--name", "mnist")
        answers.wait_for("mnist", "turn", waiter)
        answers.check("mnist", "turn", r"1st in line.*film holds the GPU", "waiting")
        waiter.kill()


def test_an_order_suspended_it(card):
    card.start_daemon()
    answers = Answers(card)
    program = DeviceProgram(card, [TANDEM, "run", "--name", "mnist", "--"])
    program.ask("fill 1")
    finish(card.spawn([TANDEM, "suspend", "mnist"]))
    program.tell("kernel 1")
    wait_until(lambda: card.sessions()[0]["state"] == "suspended", program.process, "it is suspended")
    for words in (("ps",), ("top", "--once")):
        text = card.tandem(*words)
        assert "suspended" in text and "`tandem resume mnist` continues it" in text, text
    (shown,) = answers.serve.get("/api/v1/sessions")["sessions"]
    assert shown["state"] == "suspended" and shown["suspended_by_uid"] == os.getuid()


def test_its_limit_is_reached(card):
    card.start_daemon()
    answers = Answers(card)
    program = LargeProgram(card, [TANDEM, "run", "--name", "mnist", "--memory", "40M", "--"])
    assert program.ask("alloc 4 16") == "allocated 2"
    answers.check("mnist", "limit_refused", r"16 MiB more were refused: its limit is 40 MiB")


def test_the_host_has_no_memory(card):
    card.env["TANDEM_HOST_MEMORY"] = "8M"
    card.start_daemon()
    answers = Answers(card)
    first = DeviceProgram(card, [TANDEM, "run", "--name", "film", "--"])
    first.ask("fill 1")
    program = LargeProgram(card, [TANDEM, "run", "--name", "mnist", "--"])
    assert program.ask("alloc 4 16") != "allocated 4"
    answers.check("mnist", "host_memory_refused", r"refused: the host has no memory left")


def test_a_program_outside_holds_the_memory(card):
    card.start_daemon()
    answers = Answers(card)
    program = LargeProgram(card, [TANDEM, "run", "--name", "mnist", "--"])
    assert program.ask("alloc 4 16") == "allocated 4"
    assert program.ask("fill 1") == "filled"
    finish(card.spawn([TANDEM, "suspend", "mnist"]))
    outside = card.bare(train("60M", 1000000))
    wait_until(lambda: card.gpu()["foreign_bytes"] >= 60 * MIB, outside, "its memory is counted", patience=60)
    finish(card.spawn([TANDEM, "resume", "mnist"]))
    program.tell("add 0 4 1")
    answers.wait_for("mnist", "foreign_memory", outside)
    answers.check("mnist", "foreign_memory", r"programs outside Tandem hold 6\d MiB of the GPU", "waiting")
    outside.kill()
    outside.wait()
    assert program.line() == "added 0"


def test_the_daemon_has_just_started(card):
    """It waits up to a second for a program that is stopped. The test looks then, in up to 20 restarts."""
    card.start_daemon()
    stopped = DeviceProgram(card, [TANDEM, "run", "--name", "film", "--"])
    waiting = DeviceProgram(card, [TANDEM, "run", "--name", "mnist", "--"], room=16 * MIB)
    for program in (stopped, waiting):
        program.ask("fill 1")
    pids = {s["name"]: s["pid"] for s in card.sessions()}
    os.kill(pids["film"], signal.SIGSTOP)
    answers = Answers(card)
    for _ in range(20):
        kill_current(card)
        waiting.tell("kernel 1")
        seen = set()

        def look():
            seen.add(answers.code("mnist"))
            return "daemon_restart" in seen or any(s["state"] in ("running", "idle") for s in card.sessions() or ())

        wait_until(look, waiting.process, "it waits, or goes on")
        assert waiting.line() == "queued"
        if "daemon_restart" in seen:
            break
    else:
        raise AssertionError("no listing said that the daemon had just started")
    os.kill(pids["film"], signal.SIGKILL)
