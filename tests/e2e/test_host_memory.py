"""A host with little memory: an allocation that could not leave the card is refused, and running programs
are not disturbed by that."""

import pytest

from harness import MIB, PATIENCE_S, TANDEM, DeviceProgram, finish, train, wait_until
from test_sharing import assert_all_returned, solo

pytestmark = pytest.mark.sanitized

HOST = 24 * MIB
MEMORY = 64 * MIB  # of a DeviceProgram


@pytest.fixture
def poor(make_card):
    """A card with room for a DeviceProgram and not much more, and a host with less."""
    card = make_card(vram="96M", context="2M")
    card.env["TANDEM_HOST_MEMORY"] = "24M"
    card.start_daemon()
    return card


def promised(card):
    return card.ask("status")["host_promised_bytes"]


def test_what_could_not_leave_the_card_is_refused_and_the_others_finish_right(poor):
    fitting = train("20M", 3)
    expected = solo(poor, fitting)
    program = DeviceProgram(poor, [TANDEM, "run", "--"])
    digest = program.ask("fill 1")
    assert promised(poor) == 0
    _, err = (refused := poor.shared(train("60M", 1))).communicate(timeout=PATIENCE_S)
    assert refused.returncode == 1
    assert "OUT_OF_MEMORY" in err and err.count("host memory is full") == 1, err
    assert promised(poor) == 0 and poor.handovers() == []

    second = poor.shared(fitting)
    wait_until(lambda: promised(poor) > 0, second, "they do not fit together")
    assert promised(poor) <= HOST
    assert "of 24 MiB promised" in finish(poor.spawn([TANDEM, "status"]))
    assert finish(second) == expected
    assert program.ask("digest") == digest
    finish(program.process)
    assert_all_returned(poor)
    assert promised(poor) == 0


def test_an_order_to_suspend_is_refused_where_the_host_has_no_room(poor):
    program = DeviceProgram(poor, [TANDEM, "run", "--name", "big", "--"])
    digest = program.ask("fill 2")
    order = poor.spawn([TANDEM, "suspend", "big"])
    _, err = order.communicate(timeout=PATIENCE_S)
    assert order.returncode == 1 and "host memory is full" in err
    assert not poor.session_of(program.process)["suspended"]
    assert program.ask("digest") == digest
