"""One program that wants more than the card has (docs/decisions/0016): the excess stays on the host, at
its address."""

import os
import signal
from pathlib import Path

import pytest

import harness
from harness import MIB, PATIENCE_S, TANDEM, DeviceProgram, finish, train, wait_until
from test_sharing import assert_all_returned, solo

pytestmark = pytest.mark.sanitized

LIMIT = 192 * MIB
CARD = {"vram": "128M", "context": "2M"}


class LargeProgram(DeviceProgram):
    SCRIPT = Path(__file__).with_name("oversubscribe_program.py")


@pytest.fixture
def small(make_card):
    """A card with a budget below 120 MiB."""
    card = make_card(**CARD)
    card.start_daemon()
    return card


def large(card, *flags):
    """Under `tandem run`, with a limit of one and a half cards."""
    return LargeProgram(card, [TANDEM, "run", "--memory", "192M", "--oversubscribe", *flags, "--"])


@pytest.fixture
def expect(make_card):
    """What the orders have to answer: what they do bare on a card that is large enough."""
    roomy = make_card(vram="256M", context="2M")

    return lambda orders: answers(LargeProgram(roomy), orders)


def answers(program, orders):
    return [program.ask(order) for order in orders]


WORK = ["alloc 22 8", "fill 1", "add 0 22 2", "digest", "add 3 7 3", "add 15 7 1", "digest"]


def test_a_program_larger_than_the_card_computes_right(small, expect):
    expected = expect(WORK)
    budget = small.gpu()["budget_bytes"]
    program = large(small)
    assert program.ask("info") == f"info {LIMIT} {LIMIT}"
    assert answers(program, WORK) == expected
    session = small.session_of(program.process)
    assert session["allocated_bytes"] == 176 * MIB
    assert budget - 2 * small.gpu()["chunk_bytes"] < session["resident_bytes"] <= budget
    assert session["resident_bytes"] + session["swapped_bytes"] == 176 * MIB
    assert program.ask("alloc 3 8") == "allocated 2"  # the limit holds
    assert program.ask("free 0 24") == "freed"
    wait_until(lambda: small.session_of(program.process)["allocated_bytes"] == 0, None, "it is given back")
    finish(program.process)
    assert_all_returned(small)


def test_one_block_may_be_larger_than_the_card(small, expect):
    work = ["alloc 1 180", "fill 3", "add 0 1 3", "digest"]
    program = large(small)
    assert answers(program, work) == expect(work)
    assert small.session_of(program.process)["resident_bytes"] > 100 * MIB


def test_what_launches_name_comes_onto_the_card(small, expect):
    """Its last blocks were cold at first."""
    program = large(small)
    assert answers(program, WORK[:4]) == expect(WORK[:4])
    hot = 6 * 8 * MIB

    def exchanged():
        return small.session_of(program.process)["exchanged_bytes"]

    def work_until_it_is_there():
        assert program.ask("add 16 6 1") == "added 0"
        return exchanged() >= hot

    assert exchanged() == 0
    wait_until(work_until_it_is_there, program.process, "what it uses is on the card")
    for _ in range(50):
        work_until_it_is_there()
    before = small.session_of(program.process)
    all_of_it = before["resident_bytes"] + before["swapped_bytes"]
    assert before["exchanged_bytes"] <= hot + 8 * small.gpu()["chunk_bytes"]
    assert program.ask("free 16 6") == "freed"

    def is_given_back():
        session = small.session_of(program.process)
        return session["resident_bytes"] + session["swapped_bytes"] == all_of_it - hot

    wait_until(is_given_back, program.process, "its memory is given back")
    # Of the rest some may have come to where it was.
    assert small.session_of(program.process)["swapped_bytes"] <= before["swapped_bytes"]
    finish(program.process)
    assert_all_returned(small)


def test_an_unmodified_trainer_larger_than_the_card(small, make_card):
    roomy = make_card(vram="256M")
    argv = train("150M", 3)
    expected = finish(roomy.bare(argv))
    assert finish(small.shared(argv, "--memory", "192M", "--oversubscribe")) == expected
    assert_all_returned(small)


def test_it_takes_turns_with_a_neighbour(small, expect):
    neighbours = train("40M", harness.steps(24))
    alone = solo(small, neighbours)
    program = large(small)
    expected = expect(WORK + WORK[2:])
    assert answers(program, WORK[:2]) == expected[:2]
    neighbour = small.shared(neighbours)
    assert answers(program, WORK[2:] + WORK[2:]) == expected[2:]
    assert finish(neighbour) == alone
    assert any(record["out_bytes"] > 0 for record in small.handovers())
    assert program.ask("digest") == expected[-1]
    finish(program.process)
    assert_all_returned(small)


def test_two_of_them_take_turns(small, expect):
    expected = expect(WORK)
    first, second = large(small), large(small)
    for order, answer in zip(WORK, expected):
        first.tell(order)
        second.tell(order)
        assert first.line() == second.line() == answer
    for program in (first, second):
        finish(program.process)
    assert_all_returned(small)


def test_it_is_suspended_and_goes_on(small, expect):
    expected = expect(WORK)
    program = large(small, "--name", "big")
    assert answers(program, WORK[:4]) == expected[:4]
    finish(small.spawn([TANDEM, "suspend", "big"]))
    session = small.session_of(program.process)
    assert session["resident_bytes"] == 0 and session["swapped_bytes"] == 176 * MIB
    program.tell(WORK[4])
    finish(small.spawn([TANDEM, "resume", "big"]))
    assert program.line() == expected[4]
    assert answers(program, WORK[5:]) == expected[5:]


def test_it_outlives_its_daemon(small, expect):
    expected = expect(WORK)
    program = large(small)
    assert answers(program, WORK[:4]) == expected[:4]
    os.kill(small.ask("status")["pid"], signal.SIGKILL)
    assert answers(program, WORK[4:]) == expected[4:]
    wait_until(lambda: small.ask("sessions") and small.session_of(program.process), program.process, "it is back")
    wait_until(lambda: program.ask("info").endswith(f" {LIMIT}"), program.process, "its limit is known")
    assert program.ask("alloc 3 8") == "allocated 2"
    assert program.ask("digest") != expected[-1]  # of the new blocks, too
    assert program.ask("free 22 2") == "freed"
    assert program.ask("digest") == expected[-1]


def test_a_killed_one_leaves_nothing(small):
    program = large(small)
    answers(program, WORK[:3])
    program.tell("add 0 22 50")
    os.kill(small.session_of(program.process)["pid"], signal.SIGKILL)
    program.process.wait(timeout=PATIENCE_S)
    wait_until(lambda: small.sessions() == [], None, "its session ends")
    assert small.ask("status")["host_promised_bytes"] == 0
    assert_all_returned(small)


def test_what_the_host_has_no_room_for_is_refused(make_card):
    card = make_card(**CARD)
    card.env["TANDEM_HOST_MEMORY"] = "24M"
    card.start_daemon()
    program = large(card)
    fits = int(program.ask("alloc 22 8").split()[1])
    budget = card.gpu()["budget_bytes"]
    assert fits * 8 * MIB <= budget + 24 * MIB < (fits + 1) * 8 * MIB
    assert program.ask("add 0 22 1") == "added 0"


def test_others_still_get_what_cannot_be_swapped(small, expect):
    """Beside a program that fills the card and cannot do with less they are refused it."""
    expected = expect(WORK)
    program = large(small)
    assert answers(program, WORK[:4]) == expected[:4]
    contexts = [LargeProgram(small, [TANDEM, "run", "--"]) for _ in range(6)]
    assert small.gpu()["charged_bytes"] <= small.gpu()["budget_bytes"]
    assert answers(program, WORK[4:]) == expected[4:]
    for each in [*contexts, program]:
        finish(each.process)
    assert_all_returned(small)


def test_what_it_cannot_swap_itself_leaves_it_less_of_the_card(small, expect):
    work = ["alloc 20 8", "fill 4", "add 0 20 1", "managed 20", "add 0 20 2", "digest"]
    program = large(small)
    assert answers(program, work) == expect(work)
    session = small.session_of(program.process)
    assert session["fixed_bytes"] >= 20 * MIB
    assert session["resident_bytes"] + session["fixed_bytes"] <= small.gpu()["budget_bytes"]
    assert session["resident_bytes"] + session["swapped_bytes"] == 160 * MIB
    assert program.ask("managed 100") == "managed 2"  # above the limit
    finish(program.process)
    assert_all_returned(small)


def test_without_the_flag_the_limit_is_bounded_as_ever(small):
    refused = small.shared(train("150M", 1), "--memory", "192M")
    _, err = refused.communicate(timeout=PATIENCE_S)
    assert refused.returncode == 125 and "--oversubscribe" in err
    refused = small.shared(train("150M", 1))
    _, err = refused.communicate(timeout=PATIENCE_S)
    assert refused.returncode == 1 and "OUT_OF_MEMORY" in err
