"""A program that waits for the card says so, and Ctrl-C ends it.

One program holds the card for as long as it works (policy fcfs); another, of a run on a terminal of
its own or with pipes, waits for it.
"""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios

import pytest

from harness import PATIENCE_S, TANDEM, DeviceProgram, finish, train, wait_until

# Python, with its handler for SIGINT; it waits in the launch of a kernel.
PYTHON = ["/usr/bin/python3", str(DeviceProgram.SCRIPT)]
WORK = "kernel 10\nsync\n"
DONE = "ready\nqueued\nsync 0\n"


@pytest.fixture
def busy(make_card):
    """A card whose holder works until it is killed, and that program."""
    card = make_card(vram="96M", context="2M")
    card.start_daemon()
    finish(card.spawn([TANDEM, "policy", "gpu0", "fcfs"]))
    holder = DeviceProgram(card, [TANDEM, "run", "--name", "film", "--"])
    holder.ask("fill 1")
    assert holder.ask("endless") == "queued"
    assert holder.ask("begun") == "begun"
    yield card, holder
    holder.kill()


def at_work(card, argv, *flags, **options):
    process = card.shared(argv, *flags, stdin=subprocess.PIPE, **options)
    process.stdin.write(WORK)
    process.stdin.flush()
    return process


class Terminal:
    """A program that is the foreground of a terminal of its own; what its stderr showed so far."""

    def __init__(self, card, argv, *flags, columns=100, kind="xterm"):
        self.card = card
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

        def own_terminal():
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGINT, signal.SIG_DFL)

        env = {**card.env, "TERM": kind}
        self.process = at_work(card, argv, *flags, stderr=slave, preexec_fn=own_terminal, env=env)
        os.close(slave)
        self.shown = ""

    def read(self):
        while self.master is not None and select.select([self.master], [], [], 0)[0]:
            try:
                piece = os.read(self.master, 4096)
            except OSError:
                return self.shown
            self.shown += piece.decode()
        return self.shown

    def wait_for(self, text):
        wait_until(lambda: text in self.read(), self.process, f"the terminal shows {text!r}")

    def last_line(self):
        """What is left on the terminal's last line."""
        self.read()
        return self.shown.rsplit("\x1b[K", 1)[-1]

    def press_ctrl_c(self):
        os.write(self.master, b"\x03")

    def end(self):
        out, _ = self.process.communicate(timeout=PATIENCE_S)
        self.read()
        os.close(self.master)
        self.master = None
        return self.process.returncode, out


def test_a_terminal_shows_one_line_that_goes_when_the_wait_is_over(busy):
    card, holder = busy
    program = Terminal(card, PYTHON, "--name", "mnist")
    program.wait_for("; film holds it; Ctrl-C to stop")
    assert program.last_line().startswith("tandem: waiting for gpu0: ")
    assert "\n" not in program.shown
    holder.kill()
    status, out = program.end()
    assert (status, out) == (0, DONE)
    assert program.last_line() == ""


def test_the_line_never_wraps(busy):
    card, _ = busy
    program = Terminal(card, PYTHON, "--name", "mnist", columns=30)
    program.wait_for("tandem: waiting for gpu0: ")
    assert len(program.last_line()) <= 29
    program.process.terminate()
    program.end()


def test_a_dumb_terminal_gets_plain_lines(busy):
    card, holder = busy
    program = Terminal(card, PYTHON, "--name", "mnist", kind="dumb")
    program.wait_for("; film holds it\r\n")
    holder.kill()
    assert program.end() == (0, DONE)
    start, end = program.shown.replace("\r\n", "\n").splitlines()
    assert re.fullmatch(r"tandem: waiting for gpu0: .*; film holds it", start)
    assert re.fullmatch(r"tandem: waited \d+ s for gpu0", end)
    assert "\x1b" not in program.shown


def test_ctrl_c_ends_a_program_without_a_handler_at_once(busy):
    card, _ = busy
    program = Terminal(card, train("64M", 3), "--name", "mnist")
    program.wait_for("waiting for gpu0")
    program.press_ctrl_c()
    status, _ = program.end()
    assert status == -signal.SIGINT


def test_the_second_ctrl_c_ends_a_program_with_a_handler(busy):
    card, _ = busy
    program = Terminal(card, PYTHON, "--name", "mnist")
    program.wait_for("Ctrl-C to stop")
    program.press_ctrl_c()
    program.wait_for("Ctrl-C again ends it")
    assert program.process.poll() is None
    program.press_ctrl_c()
    status, out = program.end()
    assert (status, out) == (-signal.SIGINT, "ready\n")
    assert program.last_line().replace("^C", "") == ""


def test_a_suspended_program_says_how_it_goes_on(busy):
    card, _ = busy
    program = Terminal(card, PYTHON, "--name", "mnist")
    program.wait_for("waiting for gpu0")
    finish(card.spawn([TANDEM, "suspend", "mnist"]))
    program.wait_for("; `tandem resume mnist` continues it; Ctrl-C to stop")
    assert "tandem: suspended by " in program.shown
    finish(card.spawn([TANDEM, "resume", "mnist"]))
    wait_until(lambda: "waiting for gpu0" in program.last_line(),
               program.process, "it waits for its turn again")
    program.process.terminate()
    program.end()


def test_without_a_terminal_the_start_and_the_end_are_said(busy):
    card, holder = busy
    program = at_work(card, PYTHON, "--name", "mnist")
    line = program.stderr.readline()
    assert line.startswith("tandem: waiting for gpu0: ") and line.endswith("; film holds it\n")
    holder.kill()
    out, rest = program.communicate(timeout=PATIENCE_S)
    assert out == DONE and program.returncode == 0
    assert rest.startswith("tandem: waited ") and rest.endswith(" s for gpu0\n")


@pytest.mark.parametrize("terminal", [False, True])
def test_quiet_says_nothing(busy, terminal):
    card, holder = busy
    quiet = ("--name", "mnist", "--quiet")
    program = Terminal(card, PYTHON, *quiet) if terminal else at_work(card, PYTHON, *quiet)
    watcher = at_work(card, PYTHON, "--name", "other")  # which is told later than `mnist` would be
    assert "waiting for gpu0" in watcher.stderr.readline()
    process = program.process if terminal else program
    waits = lambda: any(s["name"] == "mnist" and s["waited_s"] > 2 for s in card.sessions())
    wait_until(waits, process, "it has waited for long enough to be told of")
    holder.kill()
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (out, program.read() if terminal else err) == (DONE, "")


def test_memory_that_is_out_by_the_limit_says_so(card):
    program = card.shared(train("64M", 1), "--memory", "32M", "--name", "mnist")
    _, err = program.communicate(timeout=PATIENCE_S)
    assert program.returncode != 0
    assert "this run may have 32 MiB of GPU memory" in err
    asked = re.search(r"^train: cuMemAlloc\((.+?)\)", err, re.MULTILINE)[1]
    assert f"the program asked for {asked} more" in err
    assert "`tandem limit mnist --memory SIZE` changes a limit" in err
    assert err.count("this run may have") == 1
