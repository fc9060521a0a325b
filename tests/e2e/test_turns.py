"""Turns fit what a switch really takes: on a slow bus jobs come to their end, and pauses are used where that pays."""

import pytest

from harness import finish, train

# Two of these do not fit on a card with a budget of 54 MiB: each switch moves 46 MiB.
MEMORY = "40M"
STEPS = 10
SILENCE_S = 2  # how long the daemon waits for a sign of life, of src/core/arbiter_config.h


@pytest.fixture
def narrow(make_card):
    """Makes cards with their daemon running: narrow(bus)."""

    def make(bus):
        card = make_card(vram="64M", context="2M", bus=bus)
        card.start_daemon()
        return card

    return make


def pausing(milliseconds):
    return train(MEMORY, STEPS, "--pause-ms", str(milliseconds))


def two(card, argv):
    """What two of them print, and how often the card changed hands."""
    jobs = [card.shared(argv) for _ in range(2)]
    printed = [finish(job) for job in jobs]
    return printed, len([record for record in card.handovers() if record["from"]])


def test_jobs_whose_switch_takes_seconds_come_to_their_end(make_card, narrow):
    """A restore takes longer here than the daemon waits for a sign of life."""
    argv = train(MEMORY, 4)
    expected = finish(make_card().bare(argv))
    card = narrow("20MB/s")
    printed, handovers = two(card, argv)
    assert printed == [expected] * 2
    restores = [record for record in card.handovers() if record["in_bytes"] > 0]
    assert any(record["took_s"] > SILENCE_S for record in restores)
    # Each is brought in at most once while the other works, and then has a turn of twenty switches.
    assert handovers <= 4


def test_pauses_shorter_than_a_switch_do_not_cost_one(narrow):
    printed, handovers = two(narrow("60MB/s"), pausing(200))
    assert printed[0] == printed[1]
    assert handovers <= STEPS / 2


def test_pauses_longer_than_a_switch_are_used(narrow):
    printed, handovers = two(narrow("8GB/s"), pausing(400))
    assert printed[0] == printed[1]
    assert handovers >= STEPS / 2
