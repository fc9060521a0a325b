"""Memory that cannot be swapped is counted: others make room for it, and get it back."""

from pathlib import Path

import pytest

from harness import MIB, TANDEM, DeviceProgram, finish, wait_until
from test_sharing import assert_all_returned

pytestmark = pytest.mark.sanitized

KINDS = ["managed", "array", "graph", "pool", "heap", "stack"]
TAKEN = 60  # MiB


class FixedProgram(DeviceProgram):
    """A fixed_program, under `tandem run`."""

    SCRIPT = Path(__file__).with_name("fixed_program.py")

    def __init__(self, card, *flags):
        super().__init__(card, [TANDEM, "run", *flags, "--"])


def test_others_leave_for_it_and_get_the_room_back(make_card):
    """Of a card on which 150 MiB can be shared, two others have 64 MiB each."""
    card = make_card(vram="160M", context="2M")
    card.start_daemon()
    holders = [DeviceProgram(card, [TANDEM, "run", "--"]) for _ in range(2)]
    digests = [holders[0].ask("fill 1"), holders[1].ask("digest")]
    program = FixedProgram(card)
    assert program.ask(f"take managed {TAKEN}") == "took 0"
    assert any(record["out_bytes"] > 0 for record in card.handovers())
    assert [holder.ask("digest") for holder in holders] == digests  # in turns, beside it
    program.kill()
    wait_until(lambda: len(card.sessions()) == 2, None, "the daemon knows that it is dead")
    assert card.gpu()["charged_bytes"] <= 2 * 64 * MIB


@pytest.mark.parametrize("kind", KINDS)
def test_it_counts_for_the_limit_and_goes_with_its_program(card, kind):
    program = FixedProgram(card, "--memory", "64M")
    free = program.number("free")
    assert program.ask(f"take {kind} {TAKEN}") == "took 0"
    session = card.session_of(program.process)
    assert TAKEN * MIB <= session["fixed_bytes"] <= card.gpu()["charged_bytes"]
    assert program.number("free") <= free - TAKEN * MIB
    assert program.ask(f"take {kind} 68") == "took 2"
    assert program.ask("give") == "gave 0"
    assert program.number("free") == free
    assert card.gpu()["charged_bytes"] == 0
    assert program.ask(f"take {kind} {TAKEN}") == "took 0"
    program.kill()
    wait_until(lambda: not card.sessions(), None, "the daemon knows that it is dead")
    assert_all_returned(card)


def test_an_order_to_suspend_says_what_it_leaves_on_the_card(card):
    program = FixedProgram(card)
    session = str(card.session_of(program.process)["id"])
    assert "cannot leave" not in finish(card.spawn([TANDEM, "suspend", session]))
    finish(card.spawn([TANDEM, "resume", session]))
    assert program.ask(f"take managed {TAKEN}") == "took 0"
    taken = f"{card.session_of(program.process)['fixed_bytes'] // MIB} MiB"
    assert f"{taken} cannot leave the card" in finish(card.spawn([TANDEM, "suspend", session]))
    finish(card.spawn([TANDEM, "resume", session]))
    program.kill()


@pytest.fixture
def narrow(make_card):
    """A card of which 86 MiB can be shared: TAKEN does not fit beside a DeviceProgram."""

    def make(wait):
        card = make_card(vram="96M", context="2M")
        card.env["TANDEM_FIXED_WAIT"] = wait
        card.start_daemon()
        return card

    return make


def waits_for(card, program):
    return (card.session_of(program.process) or {}).get("reason") or ""


def test_it_gets_the_room_that_only_a_suspended_program_needs(narrow):
    card = narrow("1h")
    large = DeviceProgram(card, [TANDEM, "run", "--name", "large", "--"])
    digest = large.ask("fill 1")
    program = FixedProgram(card)
    program.tell(f"take managed {TAKEN}")
    number = card.session_of(large.process)["id"]
    wait_until(
        lambda: f"room for {TAKEN} MiB that cannot be swapped; session {number} needs" in waits_for(card, program),
        program.process,
        "the list says who needs the room",
    )
    finish(card.spawn([TANDEM, "suspend", "large"]))
    assert program.line() == "took 0"
    assert card.session_of(large.process)["resident_bytes"] == 0
    finish(card.spawn([TANDEM, "resume", "large"]))
    large.tell("kernel 1000")
    wait_until(lambda: "cannot be swapped" in waits_for(card, large), large.process, "the list says what keeps it out")
    assert program.ask("give") == "gave 0"
    assert large.line() == "queued"
    assert large.ask("digest") == digest


@pytest.mark.parametrize("kind", ["managed", "array"])
def test_who_waits_for_room_in_vain_is_told_so_and_then_that_memory_is_out(narrow, kind):
    card = narrow("4s")
    large = DeviceProgram(card, [TANDEM, "run", "--"])
    digest = large.ask("fill 1")
    program = FixedProgram(card)
    assert program.ask(f"take {kind} {TAKEN}") == "took 2"
    assert program.ask(f"take {kind} 8") == "took 0"
    program.kill()
    told = program.process.stderr.read()
    assert f"waiting for room on the card for {TAKEN} MiB that cannot be swapped. Other programs need it" in told
    assert "If they go on needing it for 4 s, this program is told that memory is out" in told
    assert f"there was no room on the card for {TAKEN} MiB that cannot be swapped within 4" in told
    assert large.ask("digest") == digest


def test_a_card_that_others_use_unshared_still_serves_everybody(make_card):
    """The daemon does not know of them; a program that finds less than it was promised says so."""
    card = make_card(vram="160M", context="2M")
    card.start_daemon()
    first = DeviceProgram(card, [TANDEM, "run", "--"])
    digest = first.ask("fill 1")
    stranger = DeviceProgram(card, [])
    stranger.ask("fill 2")
    second = DeviceProgram(card, [TANDEM, "run", "--"])
    assert second.ask("fill 3") != digest
    assert first.ask("digest") == digest
    assert all(session["fixed_bytes"] <= 128 * MIB for session in card.sessions())
