"""A program reads and writes its memory while another one has the card, and keeps it."""

import zlib

import pytest

from harness import MIB, TANDEM, DeviceProgram, wait_until
from test_control import order

ROOM = 64 * MIB  # of a DeviceProgram, whose kernels write to the first 8 bytes

pytestmark = pytest.mark.sanitized


@pytest.fixture
def full(make_card):
    """A card on which there is no room for two, and whose turns do not end by themselves."""
    card = make_card(vram="96M", context="2M")
    card.env["TANDEM_TURN"] = "3600s"
    card.start_daemon()
    return card


def at_work(card):
    """A program in its turn."""
    holder = DeviceProgram(card, [TANDEM, "run", "--name", "holder", "--"])
    holder.ask("fill 2")
    assert holder.ask("steady kernel 1000 2") == "running"

    def none_is_lent():
        gpu = card.gpu()
        return gpu["charged_bytes"] <= gpu["budget_bytes"]

    wait_until(none_is_lent, holder.process, "the hand-over is at its end")
    return holder


def resident(card, program):
    return card.session_of(program.process)["resident_bytes"]


def digest_of(value):
    return f"digest {zlib.crc32(bytes([value]) * (ROOM - 8))}"


def finishes_right(card, guest, digest, holder):
    """With the card it finds what it has written, and kernels work on it."""
    assert holder.ask("end") == "ended"
    order(card, "suspend", "holder")
    assert guest.ask("kernel 1") == "queued" and guest.ask("sync") == "sync 0"
    wait_until(lambda: resident(card, guest) >= ROOM, guest.process, "all of it is on the card")
    assert guest.ask("digest") == digest


def test_copies_wait_for_nobody(full):
    card = full
    guest = DeviceProgram(card, [TANDEM, "run", "--name", "guest", "--"])
    first = guest.ask("fill 1")
    holder = at_work(card)
    assert 0 < resident(card, guest) < ROOM
    before = len(card.handovers())
    assert guest.ask("digest") == first
    second = guest.ask("fill 3")
    assert second != first and guest.ask("digest") == second
    # In a stream, too.
    assert guest.ask(f"up {ROOM}") == "queued" and guest.ask("sync") == "sync 0"
    assert guest.ask(f"down {ROOM}") == "queued" and guest.ask("sync") == "sync 0"
    assert guest.ask("digest") == second
    assert len(card.handovers()) == before
    assert card.session_of(holder.process)["state"] == "running"
    finishes_right(card, guest, second, holder)


# The first time it has never been on the card, or nothing was written to it there.
@pytest.mark.parametrize("filled", [False, True])
def test_a_suspended_program_reads_writes_and_fills_its_memory(full, filled):
    card = full
    guest = DeviceProgram(card, [TANDEM, "run", "--name", "guest", "--"])
    first = guest.ask("fill 1") if filled else None
    holder = at_work(card)
    order(card, "suspend", "guest")
    wait_until(lambda: resident(card, guest) == 0, guest.process, "its memory has left the card")
    before = len(card.handovers())
    if filled:
        assert guest.ask("digest") == first
    assert guest.ask("set 1") == digest_of(1)
    assert guest.ask(f"down {ROOM}") == "queued" and guest.ask(f"arrived {ROOM}") == "arrived yes"
    written = guest.ask("fill 3")
    assert guest.ask("set 5") == digest_of(5)
    assert guest.ask("rows 6") == "rows right"
    page = bytes([6]) * 500 + bytes([7]) * 1000 + bytes([6]) * 1500 + bytes([5]) * 1096
    assert guest.ask("digest") == f"digest {zlib.crc32((page * (ROOM // 4096))[8:])}"
    assert guest.ask("fill 3") == written
    assert len(card.handovers()) == before
    order(card, "resume", "guest")
    finishes_right(card, guest, written, holder)
