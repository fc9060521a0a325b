"""Turns fit what a switch really takes: on a slow bus jobs come to their end, and pauses are used where that pays."""

import pytest

from harness import finish, train

# Two of these do not fit: 42 MiB have to move at each change of holder.
MEMORY = "80M"
PAUSE_MS = 400
STEPS = 10


PAUSING = train(MEMORY, STEPS, "--pause-ms", str(PAUSE_MS))


@pytest.fixture
def narrow(make_card):
    def make(bus):
        card = make_card(vram="128M", context="2M", bus=bus)
        card.start_daemon()
        return card

    return make


def two(card, argv):
    """What two of them print, and how often the card changed hands."""
    jobs = [card.shared(argv) for _ in range(2)]
    printed = [finish(job) for job in jobs]
    return printed, len([record for record in card.handovers() if record["from"]])


def test_jobs_whose_switch_takes_seconds_come_to_their_end(make_card):
    """A restore takes longer here than anybody waits for a sign of life."""
    card = make_card(vram="512M", context="16M", bus="100MB/s")
    card.start_daemon()
    argv = train("380M", 4)
    expected = finish(card.bare(argv))
    printed, handovers = two(card, argv)
    assert printed == [expected] * 2
    # Each is brought in at most once while the other works, and then has a turn of twenty switches.
    assert handovers <= 4


def test_pauses_shorter_than_a_switch_do_not_cost_one(narrow):
    printed, handovers = two(narrow("60MB/s"), PAUSING)
    assert printed[0] == printed[1]
    assert handovers <= STEPS / 2


def test_pauses_longer_than_a_switch_are_used(narrow):
    printed, handovers = two(narrow("8GB/s"), PAUSING)
    assert printed[0] == printed[1]
    assert handovers >= STEPS / 2
