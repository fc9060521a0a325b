"""Programs that lose the card every few milliseconds, and bytes of theirs with it, give what they give
alone: bare, under Tandem, and under Tandem with chaos (src/service/chaos.h). A failure prints the
seed; TANDEM_SEED takes it back.
"""

import os

import pytest

from harness import BUILD, SANITIZED, finish, steps, threads, train, wait_until
from test_bad_input import KNOWN_GAPS, verdicts
from test_ffmpeg_filters import GRAPHS, md5
from test_sharing import assert_all_returned

DRIVER_TEST = BUILD / "bin" / "tests" / "driver_test"


@pytest.fixture
def chaotic(make_card):
    """A card whose daemon takes the lease from every holder, again and again."""
    card = make_card()
    seed = os.environ.get("TANDEM_SEED", str(int.from_bytes(os.urandom(4), "little")))
    card.env.update(TANDEM_CHAOS="1", TANDEM_SEED=seed)
    card.start_daemon()
    print(f"TANDEM_SEED={seed}")
    assert card.ask("status")["chaos_seed"] == seed
    return card


def chaos_was_there(card):
    """Bytes have left the card, and come back."""
    return any(record["out_bytes"] > 0 for record in card.handovers())


def assert_chaos_was_there(card):
    assert chaos_was_there(card)
    wait_until(lambda: card.gpu()["charged_bytes"] == 0, None, "the last visit ends")
    assert_all_returned(card)


# Under a sanitizer only what moves memory under copies, launches, captures and graphs.
MOVING = "MemoryTest.*:LaunchTest.*:LaunchExTest.*:LibraryTest.*:CaptureTest.*:GraphExecTest.*:ArrayTest.*:VmmTest.*"
CASES = "--gtest_filter=" + (MOVING if SANITIZED else "*") + KNOWN_GAPS.removeprefix("--gtest_filter=")
# All but the upload by itself, which is done before chaos comes; each of these begins with it.
FILTERS = ["overlay", "scale-bicubic", "yadif", "chromakey", "thumbnail"]
WORK = {"train": train("12M", steps(10)), "threads": threads(1, 16), **{name: md5(*GRAPHS[name]) for name in FILTERS}}


@pytest.mark.parametrize("name", WORK)
def test_the_same_bare_shared_and_in_chaos(card, chaotic, name):
    expected = finish(card.bare(WORK[name]))
    assert finish(card.shared(WORK[name])) == expected
    for _ in range(20):  # a program may be so short that chaos comes too late for it
        assert finish(chaotic.shared(WORK[name])) == expected
        if chaos_was_there(chaotic):
            break
    assert_chaos_was_there(chaotic)


@pytest.mark.sanitized
def test_a_driver_in_chaos_is_still_one(card, chaotic):
    """Each case ends as it does without."""
    bare = verdicts(finish(card.bare([DRIVER_TEST, CASES])))
    assert verdicts(finish(card.shared([DRIVER_TEST, CASES]))) == bare
    assert verdicts(finish(chaotic.shared([DRIVER_TEST, CASES]))) == bare
    assert_chaos_was_there(chaotic)
