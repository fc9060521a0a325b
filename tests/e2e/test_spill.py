"""What neither the card nor the host's memory holds lies in files, and comes back as it was."""

import contextlib
import os
import re
import subprocess

import pytest

from harness import (
    MIB,
    PATIENCE_S,
    TANDEM,
    TANDEMD,
    DeviceProgram,
    finish,
    train,
    wait_until,
)
from test_restart import kill_daemon
from test_sharing import assert_all_returned, solo

pytestmark = pytest.mark.sanitized

HOST = 8 * MIB


@pytest.fixture
def card(make_card, tmp_path):
    """Two programs of 60 MiB do not fit on it, and what one of them has to give up not in memory."""
    card = make_card(vram="96M", context="2M")
    card.env["TANDEM_HOST_MEMORY"] = "8M"
    card.env["TANDEM_SPILL"] = f"{tmp_path}:200M"
    card.directory = tmp_path
    card.start_daemon()
    return card


def in_files(card, pid):
    """Bytes of the process's memory that lie in files of the spill directory, which have no names;
    none of a process that has ended."""
    total, inside = 0, False
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps", encoding="ascii") as maps:
        for line in maps:
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                inside = f" {card.directory}/" in line and line.endswith(" (deleted)\n")
            elif inside and line.startswith("Rss:"):
                total += int(line.split()[1]) * 1024
    return total


def test_programs_that_neither_card_nor_memory_hold_finish_right(card):
    fitting = train("60M", 6)
    expected = solo(card, fitting)
    first, second = card.shared(fitting), card.shared(fitting)

    def spilled():
        sessions = card.ask("sessions")["sessions"]
        return sum(in_files(card, each["pid"]) for each in sessions) >= 8 * MIB

    wait_until(spilled, first, "what does not fit lies in a file")
    status = card.ask("status")
    assert status["spill_promised_bytes"] > 0
    assert status["host_promised_bytes"] - status["spill_promised_bytes"] <= HOST
    assert f"of it in files in {card.directory}" in finish(card.spawn([TANDEM, "status"]))
    assert os.listdir(card.directory) == []  # they have no names
    assert finish(first) == expected
    assert finish(second) == expected
    assert card.handovers() != []
    assert_all_returned(card)
    assert card.ask("status")["spill_promised_bytes"] == 0


def test_a_suspended_program_waits_in_a_file_through_a_restart(card):
    program = DeviceProgram(card, [TANDEM, "run", "--name", "big", "--"])
    digest = program.ask("fill 3")
    finish(card.spawn([TANDEM, "suspend", "big"]))
    pid = card.session_of(program.process)["pid"]
    wait_until(lambda: in_files(card, pid) >= 32 * MIB, program.process, "it leaves the card")
    kill_daemon(card)
    wait_until(lambda: card.session_of(program.process), program.process, "it is back")
    assert in_files(card, pid) >= 32 * MIB
    finish(card.spawn([TANDEM, "resume", "big"]))
    assert program.ask("digest") == digest
    # And once more: by now the file is another daemon's.
    digest = program.ask("fill 4")
    finish(card.spawn([TANDEM, "suspend", "big"]))
    wait_until(lambda: in_files(card, pid) >= 32 * MIB, program.process, "it leaves the card again")
    finish(card.spawn([TANDEM, "resume", "big"]))
    assert program.ask("digest") == digest
    finish(program.process)


# Its memory is in files when it forks, and its child looks for them.
FORKS = """
import ctypes, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, pointer, size = ctypes.c_void_p(), ctypes.c_uint64(), 64 << 20
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0
data = os.urandom(1 << 20) * 64
assert cuda.cuMemcpyHtoD_v2(pointer, data, ctypes.c_size_t(size)) == 0

def ours():
    files = [os.readlink(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd") if
             os.path.lexists(f"/proc/self/fd/{each}")]
    return [each for each in files + list(open("/proc/self/maps")) if sys.argv[1] + "/" in each]

print("ready", flush=True)
sys.stdin.readline()
assert ours()
child = os.fork()
if child == 0:
    os._exit(len(ours()))
assert os.waitpid(child, 0)[1] == 0
print("forked", flush=True)
sys.stdin.readline()
back = ctypes.create_string_buffer(size)
assert cuda.cuMemcpyDtoH_v2(back, pointer, ctypes.c_size_t(size)) == 0
assert back.raw == data
"""


def test_a_child_has_nothing_of_the_file(card):
    forks = ["/usr/bin/python3", "-c", FORKS, card.directory]
    program = card.shared(forks, "--name", "parent", stdin=subprocess.PIPE)
    assert program.stdout.readline() == "ready\n"
    finish(card.spawn([TANDEM, "suspend", "parent"]))
    (session,) = card.sessions()
    wait_until(lambda: in_files(card, session["pid"]) >= 32 * MIB, program, "it leaves the card")
    program.stdin.write("\n")
    program.stdin.flush()
    assert program.stdout.readline() == "forked\n"
    finish(card.spawn([TANDEM, "resume", "parent"]))
    program.stdin.write("\n")
    program.stdin.flush()
    finish(program)


@pytest.mark.parametrize(
    "value, reason",
    [
        ("64G", "a directory and a size are wanted, such as /var/tmp:64G"),
        ("/nowhere/at/all:64G", "cannot make a file in /nowhere/at/all: No such file or directory"),
    ],
)
def test_a_mistake_is_said_at_the_start(make_card, value, reason):
    card = make_card(vram="96M", context="2M")
    tried = subprocess.run(
        [TANDEMD, "--spill", value], env=card.env, capture_output=True, text=True,
        timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert tried.returncode != 0 and reason in tried.stderr, tried.stderr
