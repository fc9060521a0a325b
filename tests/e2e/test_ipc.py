"""Memory that one program shares with another by a handle: both have the same bytes, whatever else
the card is used for meanwhile, and it is counted as long as any program has it."""

import os
from pathlib import Path

import pytest

from harness import MIB, TANDEM, DeviceProgram, wait_until
from test_sharing import assert_all_returned

pytestmark = pytest.mark.sanitized

INVALID_VALUE, INVALID_CONTEXT, MAP_FAILED = 1, 201, 205
LARGE, SMALL = 5_000_000, 3000  # 6 MiB of the card, and a page of 2


class IpcProgram(DeviceProgram):
    """An ipc_program, under `tandem run`, or bare."""

    SCRIPT = Path(__file__).with_name("ipc_program.py")

    def __init__(self, card, prefix=(TANDEM, "run", "--"), **environment):
        super().__init__(card, prefix, **environment)
        self.card = card

    def make(self, size, seed):
        return self.number(f"make {size} {seed}")

    def share(self, block):
        word, handle = self.ask(f"share {block}").split()
        assert word == "handle", handle
        return handle

    def open(self, handle):
        word, block = self.ask(f"open {handle}").split()
        assert word == "opened", block
        return int(block)

    def digest(self, block):
        return self.ask(f"digest {block}")

    def fixed(self):
        return self.card.session_of(self.process)["fixed_bytes"]


def charged(card):
    return card.gpu()["charged_bytes"]


def test_both_have_the_same_bytes_while_others_come_and_go(make_card):
    """Of a card on which 150 MiB can be shared, two others have 64 MiB each, and the two 36 each."""
    card = make_card(vram="160M", context="2M")
    card.start_daemon()
    maker, user = IpcProgram(card), IpcProgram(card)
    private = [program.make(28 * MIB, seed) for seed, program in enumerate((maker, user))]
    blocks = [maker.make(LARGE, 11), maker.make(SMALL, 12)]
    neighbour = maker.make(SMALL, 13)  # in the same page
    before = [maker.digest(block) for block in blocks]
    opened = [user.open(maker.share(block)) for block in blocks]
    holders = [DeviceProgram(card, [TANDEM, "run", "--"]) for _ in range(2)]
    expected = [holders[0].ask("fill 1"), holders[1].ask("fill 2")]
    own = [program.digest(block) for program, block in zip((maker, user), private)]
    handovers = len(card.handovers())
    assert [user.digest(block) for block in opened] == before
    for turn in range(3):
        writer, reader = ((maker, blocks), (user, opened))[:: 1 if turn % 2 else -1]
        written = [writer[0].ask(f"write {block} {turn + i}") for i, block in enumerate(writer[1])]
        assert [holder.ask("digest") for holder in holders] == expected
        assert [reader[0].digest(block) for block in reader[1]] == written
    assert [program.digest(block) for program, block in zip((maker, user), private)] == own
    assert len(card.handovers()) > handovers
    assert maker.fixed() == user.fixed() == 8 * MIB
    assert maker.ask(f"free {neighbour}") == "freed 0"
    for program, block in ((user, opened[1]), (user, opened[0])):
        assert program.ask(f"close {block}") == "closed 0"
    assert user.fixed() == 0
    for block in blocks:
        assert maker.ask(f"free {block}") == "freed 0"
    assert maker.fixed() == 0
    for program in (maker, user, *holders):
        program.kill()
    wait_until(lambda: not card.sessions(), None, "the daemon knows that they are dead")
    assert_all_returned(card)


def test_answers_as_the_driver_does(card):
    """Bare and under Tandem: opened twice, by its maker, by a handle of no memory; closed too often."""

    def answers(maker, user):
        block, other = maker.make(SMALL, 1), maker.make(SMALL, 2)
        handle = maker.share(block)
        assert maker.share(block) == handle
        first, again, beside = user.open(handle), user.open(handle), user.open(maker.share(other))
        places = [user.ask(f"where {number}").split()[1:] for number in (first, again, beside)]
        address, base, size = map(int, places[0])
        assert (base, size) == (address, SMALL) and places[0] == places[1] != places[2]
        assert user.digest(beside) == maker.digest(other)
        found = [maker.ask(f"open {handle}"), user.ask("open " + "00" * 64), user.ask("open " + "ab" * 64)]
        found += [user.ask(f"free {first}"), user.ask(f"share {maker.make(SMALL, 3) and first}")]
        found += [user.ask(f"close {number}") for number in (first, again, again, beside)]
        assert maker.ask(f"free {block}") == "freed 0"
        found.append(user.ask(f"open {handle}"))
        return found

    bare = answers(IpcProgram(card, ()), IpcProgram(card, ()))
    assert answers(IpcProgram(card), IpcProgram(card)) == bare
    assert bare[:3] == [f"refused {INVALID_CONTEXT}", f"refused {INVALID_VALUE}", f"refused {INVALID_VALUE}"]


def test_a_handle_of_nobodys_is_refused(card):
    maker, user = IpcProgram(card), IpcProgram(card)
    handle = bytes.fromhex(maker.share(maker.make(LARGE, 1)))
    for place in (8, 23):  # in the token
        wrong = bytearray(handle)
        wrong[place] ^= 1
        assert user.ask(f"open {wrong.hex()}") == f"refused {MAP_FAILED}"
    for place in (24, 32, 40):  # sizes and places
        wrong = bytearray(handle)
        wrong[place : place + 8] = os.urandom(7) + b"\xff"
        assert user.ask(f"open {wrong.hex()}") == f"refused {INVALID_VALUE}"
    assert user.fixed() == 0
    assert user.digest(user.open(handle.hex())) == maker.digest(0)


def test_its_maker_is_killed(card):
    maker, user = IpcProgram(card), IpcProgram(card)
    handle = maker.share(maker.make(LARGE, 1))
    block = user.open(handle)
    content = maker.digest(0)
    assert maker.fixed() == user.fixed() == 6 * MIB
    maker.kill()
    wait_until(lambda: len(card.sessions()) == 1, None, "the daemon knows that it is dead")
    assert charged(card) == 6 * MIB  # no other program gets that room
    assert user.digest(block) == content
    assert user.open(handle) != block
    assert user.ask(f"close {block}") == user.ask(f"close {block}") == "closed 0"
    assert user.ask(f"open {handle}") == f"refused {MAP_FAILED}"
    assert charged(card) == 0
    user.kill()
    wait_until(lambda: not card.sessions(), None, "the daemon knows that it is dead")
    assert_all_returned(card)


def test_its_maker_frees_it(card):
    maker, user = IpcProgram(card), IpcProgram(card)
    handle = maker.share(maker.make(LARGE, 1))
    block = user.open(handle)
    content = maker.digest(0)
    assert maker.ask("free 0") == "freed 0"
    assert maker.fixed() == 0 and user.fixed() == 6 * MIB
    maker.make(LARGE, 2)
    assert user.digest(block) == content
    late = IpcProgram(card)
    assert late.ask(f"open {handle}") == f"refused {MAP_FAILED}"


def test_who_opened_it_is_killed(card):
    maker, user = IpcProgram(card), IpcProgram(card)
    block = user.open(maker.share(maker.make(LARGE, 1)))
    written = user.ask(f"write {block} 5")
    user.kill()
    wait_until(lambda: len(card.sessions()) == 1, None, "the daemon knows that it is dead")
    assert maker.digest(0) == written and maker.fixed() == 6 * MIB
    assert IpcProgram(card).open(maker.share(0)) == 0


def test_handles_outlive_the_daemon(card):
    """The next one is told by who shares, and by who has it open, what they have."""
    maker, user = IpcProgram(card), IpcProgram(card)
    handle = maker.share(maker.make(LARGE, 1))
    block = user.open(handle)
    first = card.ask("status")["pid"]
    card.daemon.kill()
    card.daemon.wait()
    wait_until(lambda: (card.ask("status") or {"pid": first})["pid"] != first, None, "there is another daemon")
    wait_until(lambda: len(card.sessions()) == 2, None, "both are back")
    assert maker.fixed() == user.fixed() == 6 * MIB
    late = IpcProgram(card)
    opened = late.open(handle)
    assert late.ask(f"write {opened} 7") == maker.digest(0) == user.digest(block)


def test_between_programs_of_which_one_is_not_shared(card):
    shared, bare = IpcProgram(card), IpcProgram(card, ())
    handle = bare.share(bare.make(LARGE, 1))
    block = shared.open(handle)
    assert shared.open(handle) == block + 1
    assert shared.digest(block) == bare.digest(0)
    assert LARGE <= shared.fixed() < 2 * LARGE
    assert shared.ask(f"close {block}") == "closed 0" and shared.fixed() >= LARGE
    assert shared.ask(f"close {block}") == "closed 0" and shared.fixed() == 0
    assert bare.ask("open " + shared.share(shared.make(LARGE, 2))) == f"refused {INVALID_VALUE}"


def test_memory_of_another_device(make_card):
    """Counts on the device that it is on."""
    card = make_card(devices="gpu0,gpu1")
    card.start_daemon()
    maker, user = IpcProgram(card), IpcProgram(card, ON_DEVICE="1")
    handle = maker.share(maker.make(LARGE, 1))
    block = user.open(handle)
    assert user.digest(block) == maker.digest(0)
    assert user.ask(f"write {block} 2") == maker.digest(0)
    sessions = {(session["pid"], session["gpu"]): session["fixed_bytes"] for session in card.sessions()}
    assert sorted(sessions.values()) == [0, 6 * MIB, 6 * MIB]
    assert [gpu for (_, gpu), fixed in sessions.items() if fixed != 0] == [0, 0]
    assert user.ask(f"close {block}") == "closed 0"
    for program in (maker, user):
        program.kill()
    wait_until(lambda: not card.sessions(), None, "the daemon knows that they are dead")
    assert_all_returned(card)
