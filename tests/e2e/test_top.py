"""`tandem top` on a terminal: what a person sees of two programs that share, and what the keys do."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios

import pyte
import pytest

from harness import PATIENCE_S, SOURCE, TANDEM, finish, train, wait_until

PAGE = (SOURCE / "docs" / "json.md").read_text()


class Terminal:
    """A command that is the foreground of a terminal of its own, and that terminal's screen."""

    def __init__(self, card, *words, columns=80, rows=24, **environment):
        self.card = card
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.sent = b""
        self.master, slave = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(slave)

        def own_terminal():
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})  # as perf does

        env = {**card.env, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **environment}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            if name not in environment:
                env.pop(name, None)
        self.process = subprocess.Popen(
            [TANDEM, *words], stdin=slave, stdout=slave, stderr=slave, env=env, preexec_fn=own_terminal
        )
        card.processes.append(self.process)
        self.slave = slave  # kept open: its settings are compared at the end

    def resize(self, columns, rows):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.resize(rows, columns)

    def text(self):
        while select.select([self.master], [], [], 0)[0]:
            data = os.read(self.master, 1 << 16)
            self.sent += data
            self.stream.feed(data)
        return "\n".join(line.rstrip() for line in self.screen.display)

    def sees(self, *words):
        def seen():
            text = self.text()
            return text if all(word in text for word in words) else None

        return wait_until(seen, self.process, f"the screen shows {words}")

    def press(self, keys):
        os.write(self.master, keys.encode())

    def end(self):
        def ended():
            self.text()  # a full terminal would keep it from ending
            return self.process.poll() is not None

        wait_until(ended, None, "it ends")
        self.text()
        after = termios.tcgetattr(self.slave)
        os.close(self.slave)
        os.close(self.master)
        return self.process.returncode, after == self.before


@pytest.fixture
def scene(make_card):
    """Two programs that take turns."""
    card = make_card()
    card.start_daemon()
    card.shared(train("160M", 100000), "--name", "film")
    waiter = card.shared(train("160M", 100000), "--name", "mnist")
    wait_until(lambda: len(card.sessions()) == 2, waiter, "both are there")
    return card


def test_a_person_sees_both_programs_and_suspends_one(scene):
    top = Terminal(scene, "top", "--interval", "200ms")
    text = top.sees("gpu0", "film", "mnist", "%", "q quit")
    assert "policy" in text and "held  " in text
    top.sees("█")
    top.press("z")
    top.sees("Suspend", "? y/n")
    top.press("n")
    wait_until(lambda: "? y/n" not in top.text(), top.process, "the question is gone")
    assert not any(s["suspended"] for s in scene.sessions())
    top.press("zy")
    top.sees("suspended")
    suspended = [s["name"] for s in scene.sessions() if s["suspended"]]
    assert len(suspended) == 1
    top.press("ry")
    wait_until(lambda: not any(s["suspended"] for s in scene.sessions()), None, "it is resumed")
    top.resize(120, 40)
    wait_until(lambda: "q quit" in top.text().split("\n")[39], top.process, "the view fills the screen")
    top.press("h")
    top.sees("suspend the selected session")
    top.press("h\r")
    top.sees("host memory promised")
    top.press("q")
    status, restored = top.end()
    assert status == 0 and restored
    assert top.sent.rindex(b"\x1b[?1049l") > top.sent.rindex(b"\x1b[?1049h")
    assert top.sent.rindex(b"\x1b[?25h") > top.sent.rindex(b"\x1b[?25l")  # the cursor is back


def test_ctrl_c_leaves_the_terminal_as_it_was(card):
    top = Terminal(card, "top")
    top.sees("gpu0")
    top.press("\x03")
    assert top.end() == (128 + signal.SIGINT, True)


def test_a_daemon_that_ends_is_looked_for_again(card):
    top = Terminal(card, "top", "--interval", "100ms")
    top.sees("gpu0", "q quit")
    card.daemon.terminate()
    top.sees("No daemon runs")
    card.daemon.wait(timeout=PATIENCE_S)
    card.start_daemon()
    wait_until(lambda: "No daemon" not in top.text(), top.process, "the next daemon is found")
    top.press("q")
    assert top.end() == (0, True)


def test_colours_are_left_out_on_request(scene):
    coloured = Terminal(scene, "top")
    coloured.sees("film", "q quit")
    plain = Terminal(scene, "top", NO_COLOR="1")
    plain.sees("film", "q quit")
    used = [{cell.fg for row in t.screen.buffer.values() for cell in row.values()} for t in (coloured, plain)]
    assert used[0] > {"default"} and used[1] == {"default"}
    for top in (coloured, plain):
        top.press("q")
        assert top.end() == (0, True)


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"TERM": "no-such-terminal"}])
def test_a_terminal_that_cannot_is_printed_to(scene, environment):
    top = Terminal(scene, "top", "--interval", "100ms", **environment)
    top.sees("film", "mnist")
    status, restored = top.end()
    assert status == 0 and restored and b"?1049h" not in top.sent


def test_once_prints_text(scene):
    text = scene.tandem("top", "--once", "--interval", "100ms")
    assert "film" in text and "mnist" in text and "hand-overs:" in text
    assert "\x1b" not in text and "quit" not in text
    ascii_only = finish(scene.spawn([TANDEM, "top"], env={**scene.env, "LC_ALL": "C"}))
    assert "film" in ascii_only and ascii_only.isascii()


def keys(value):
    if isinstance(value, list):
        return set().union(*map(keys, value))
    return set(value) | keys(list(value.values())) if isinstance(value, dict) else set()


def test_json_has_the_rates(scene):
    top = json.loads(scene.tandem("top", "--json", "--once", "--interval", "300ms"))
    assert 0 < top["gpus"][0]["utilisation"] <= 1
    assert sorted(s["name"] for s in top["sessions"]) == ["film", "mnist"]
    section = PAGE.split("## `tandem top`\n", 1)[1].split("\n## ", 1)[0]
    documented = {w for row in section.splitlines() if row.startswith("| `") for w in re.findall(r"`(\w+)`", row)}
    known = keys(scene.ask("sessions")) | keys(scene.ask("status"))
    assert keys(top) - known == documented - {"null"}


def test_json_goes_on_until_its_reader_is_gone(card):
    top = card.spawn([TANDEM, "top", "--json", "--interval", "100ms"])
    for _ in range(3):
        assert json.loads(top.stdout.readline())["pid"] == card.daemon.pid
    top.stdout.close()
    top.stdout = None
    assert top.wait(timeout=PATIENCE_S) != 0


def test_without_a_daemon_that_is_said(make_card):
    card = make_card()
    assert "No daemon runs" in card.tandem("top", "--once")
    assert json.loads(card.tandem("top", "--once", "--json")) == {"gpus": [], "pid": None, "runs": [], "sessions": []}
