"""The daemon as a service: its manager, its signals, its privileges."""

import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

import harness
import users
from harness import PATIENCE_S, DeviceProgram, wait_until

UNITS = harness.BUILD / "systemd"
CAP_CHOWN, CAP_KILL = 0, 5  # numbers of capabilities(7)


class Manager:
    """The end of a service manager that a service notifies, as sd_notify(3) says."""

    def __init__(self, directory):
        self.path = directory / "notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(self.path))
        self.socket.settimeout(PATIENCE_S)

    def hears(self, *, but=("WATCHDOG=1",)):
        """The next state, without those in `but`."""
        while (state := self.socket.recv(256).decode()) in but:
            pass
        return state


@pytest.fixture
def manager(tmp_path):
    made = Manager(tmp_path)
    yield made
    made.socket.close()


def test_a_manager_hears_that_the_daemon_is_ready_lives_and_ends(make_card, manager):
    card = make_card()
    card.env |= {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "200000"}
    daemon = card.start_daemon()
    assert manager.hears() == "READY=1"
    assert [manager.hears(but=()) for _ in range(3)] == ["WATCHDOG=1"] * 3
    daemon.send_signal(signal.SIGHUP)
    assert manager.hears().startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert manager.hears() == "READY=1"
    daemon.terminate()
    assert manager.hears() == "STOPPING=1"
    assert daemon.wait(timeout=PATIENCE_S) == 0


def test_a_stopped_daemon_misses_its_watchdog(make_card, manager):
    """As one that hangs does: nothing but its loop tells the manager that it lives."""
    card = make_card()
    card.env |= {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "200000"}
    daemon = card.start_daemon()
    assert manager.hears() == "READY=1"
    daemon.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, daemon.pid, os.WSTOPPED)
    manager.socket.setblocking(False)
    with pytest.raises(BlockingIOError):  # all that came before is read
        while True:
            manager.hears(but=())
    daemon.send_signal(signal.SIGCONT)
    manager.socket.settimeout(PATIENCE_S)
    assert manager.hears(but=()) == "WATCHDOG=1"


def test_sighup_opens_the_log_again_and_sigpipe_does_nothing(make_card, tmp_path):
    card = make_card()
    log, old = tmp_path / "tandemd.log", tmp_path / "old.log"
    daemon = card.start_daemon("--log", log)
    program = DeviceProgram(card, [harness.TANDEM, "run", "--"])
    card.tandem("policy", "gpu0", "fcfs")
    before = log.read_text()
    assert re.search(rf'program "python3.*", process \d+, user {os.getuid()}, gpu0\) has started', before)
    assert f"policy of gpu0 set to fcfs, before interactive, by user {os.getuid()}" in before
    log.rename(old)
    daemon.send_signal(signal.SIGPIPE)
    daemon.send_signal(signal.SIGHUP)
    wait_until(lambda: log.exists() and "opened again" in log.read_text(), daemon, "the log is opened again")
    assert program.ask("fill 1").startswith("digest")
    program.process.stdin.close()
    program.process.wait(timeout=PATIENCE_S)
    wait_until(lambda: "has ended" in log.read_text(), daemon, "the new log goes on")
    assert "has ended" not in old.read_text()


def status_of(pid):
    return dict(re.findall(r"^(\w+):\s*(.*)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE))


def test_a_daemon_of_roots_keeps_two_capabilities_and_gains_none(make_card):
    if os.geteuid() != 0:
        pytest.skip("needs root, to have capabilities")
    before = int(status_of(os.getpid())["CapPrm"], 16)
    assert before & (1 << CAP_KILL), "the test has capabilities to give up"
    card = make_card()
    daemon = card.start_daemon()
    allowed = (1 << CAP_CHOWN | 1 << CAP_KILL) & before
    status = status_of(daemon.pid)
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == allowed
    assert int(status["CapInh"], 16) == int(status["CapAmb"], 16) == 0
    assert status["NoNewPrivs"] == "1"


@pytest.mark.parametrize("kind", ["system", "user"])
def test_the_units_are_valid(kind, tmp_path):
    """systemd's own check, with the daemon of this build."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs systemd-analyze")
    text = (UNITS / kind / "tandemd.service").read_text()
    installed = re.search(r"^ExecStart=(\S+)", text, re.MULTILINE)[1]
    unit = tmp_path / "tandemd.service"
    unit.write_text(text.replace(installed, str(harness.TANDEMD)))
    words = [analyze, "verify", f"--{kind}", "--man=no", str(unit)]
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    ours = [line for line in done.stderr.splitlines() if "tandemd" in line]
    assert ours == [] and done.returncode == 0, done.stderr


def test_the_unit_serves_what_the_daemon_needs(make_card):
    """The limits of the unit for root, as far as they can be had without systemd."""
    text = (UNITS / "system" / "tandemd.service").read_text()
    bound = re.search(r"^CapabilityBoundingSet=(.*)$", text, re.MULTILINE)[1].split()
    if not users.can_be_others():
        pytest.skip("needs root, to bound capabilities")
    card = make_card()
    names = ",".join("-all" if i == 0 else "+" + name.removeprefix("CAP_").lower() for i, name in enumerate(["all", *bound]))
    bounded = ["setpriv", f"--bounding-set={names}", "--no-new-privs", harness.TANDEMD]
    env = {**card.env, "LD_LIBRARY_PATH": str(harness.SOFT_GPU)}
    card.daemon = card.spawn(bounded, env=env, stderr=subprocess.DEVNULL)
    wait_until(lambda: card.ask("status") is not None, card.daemon, "the daemon answers")
    program = DeviceProgram(card, [harness.TANDEM, "run", "--"])
    assert program.ask("fill 1").startswith("digest")
