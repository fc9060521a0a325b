"""What a program only reads is copied out once: chunks that are as they were when they came back leave
the card without a copy, and whatever was written to is copied, by whatever way it was written."""

import os
import random

import pytest

from harness import MIB, SANITIZED, TANDEM, DeviceProgram, finish, wait_until

MEMORY = 16 * MIB  # of a DeviceProgram
CHUNK = 2 * MIB
SMALL = {"vram": "32M", "context": "2M"}  # a card whose budget, 22 MiB, is enough for one of them


def two_programs(card):
    """That do not fit together, with the digests of what they have."""
    prefixes = [[TANDEM, "run", "--name", name, "--"] for name in ("first", "second")]
    programs = [DeviceProgram(card, prefix, room=MEMORY) for prefix in prefixes]
    return programs, [program.ask(f"fill {seed}") for seed, program in enumerate(programs)]


def read(program):
    """On the card, which a copy alone need not have; what the kernel writes is not in the digest."""
    assert program.ask("kernel 1") == "queued"
    assert program.ask("sync") == "sync 0"
    return program.ask("digest")


def read_by_turns(programs, digests):
    assert [read(program) for program in programs] == digests


def out(card):
    return {session["name"]: session["out_bytes"] for session in card.sessions()}


def settle(card, programs, digests):
    """Reads by turns until memory comes in and none is copied out: it is known what a hash costs, and all
    fingerprints are. What has been copied out by then. On a busy machine a hash may look too slow for
    some turns."""

    def nothing_is_copied_out():
        before, moved_in = out(card), card.gpu()["in_bytes"]
        read_by_turns(programs, digests)
        return out(card) == before and card.gpu()["in_bytes"] > moved_in

    wait_until(nothing_is_copied_out, programs[0].process, "what is only read is not copied out")
    return out(card)


def write_through(program, place):
    """By a kernel that finds the address in memory, and not among its arguments. The new digest."""
    assert program.ask(f"through {place}") == "queued"
    assert program.ask("sync") == "sync 0"
    return program.ask("digest")


def end(programs):
    for program in programs:
        finish(program.process)


@pytest.fixture
def slow_card(make_card):
    """Where a copy over the bus costs more than a hash does here, which sanitizers make many times slower:
    with them it never pays at 400 MB/s, and on some machines not at 100 MB/s."""
    card = make_card(**SMALL, bus="30MB/s" if SANITIZED else "100MB/s")
    card.start_daemon()
    return card


@pytest.mark.sanitized
def test_what_is_only_read_is_copied_out_once(slow_card):
    programs, digests = two_programs(slow_card)
    assert min(settle(slow_card, programs, digests).values()) > 0
    end(programs)


def test_what_was_written_by_a_way_nobody_sees_is_copied(slow_card):
    programs, digests = two_programs(slow_card)
    before = settle(slow_card, programs, digests)
    for place in (MEMORY - 128, MEMORY - 3 * MIB):
        written = write_through(programs[0], place)
        assert written != digests[0]
        digests[0] = written
        read_by_turns(programs[::-1], digests[::-1])
        after = settle(slow_card, programs, digests)
        assert after["first"] - before["first"] >= CHUNK
        before = after
    end(programs)


def test_in_chaos_too(make_card):
    card = make_card(**SMALL, bus="400MB/s")
    seed = os.environ.get("TANDEM_SEED", str(int.from_bytes(os.urandom(4), "little")))
    print(f"TANDEM_SEED={seed}")
    card.env.update(TANDEM_CHAOS="1", TANDEM_SEED=seed)
    card.start_daemon()
    programs, digests = two_programs(card)
    chance = random.Random(int(seed))
    for _ in range(12):
        which = chance.randrange(2)
        written = write_through(programs[which], chance.randrange(MEMORY // 128) * 128)
        assert written != digests[which]
        digests[which] = written
        read_by_turns(programs, digests)
    end(programs)
