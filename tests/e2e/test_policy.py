"""Which rule says who is next: shown, changed while programs run, and refused where it is none."""

import json

import pytest

from harness import PATIENCE_S, TANDEM, DeviceProgram, finish, wait_until

pytestmark = pytest.mark.sanitized


@pytest.fixture
def middle(make_card):
    """A card with room for a DeviceProgram and not much more."""
    card = make_card(vram="96M", context="2M")
    card.start_daemon()
    return card


def policy(card, *words):
    return finish(card.spawn([TANDEM, "policy", *words]))


def refused(card, *words):
    process = card.spawn([TANDEM, "policy", *words])
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode != 0, out
    return err


def test_it_is_shown_with_those_there_are(middle):
    text = policy(middle)
    assert "gpu0  interactive" in text
    assert "fcfs" in text
    shown = json.loads(policy(middle, "--json"))
    assert shown["gpus"] == [{"index": 0, "policy": "interactive"}]
    assert {"fcfs", "interactive", "round-robin"} <= {each["name"] for each in shown["policies"]}


def test_it_is_changed_and_says_for_which_gpu(middle):
    assert policy(middle, "gpu0", "fcfs") == "gpu0: fcfs, before interactive\n"
    assert policy(middle, "all", "fcfs") == "gpu0: fcfs, as before\n"
    changed = json.loads(policy(middle, "0", "round-robin", "--json"))
    assert changed["gpus"] == [{"index": 0, "policy": "round-robin", "before": "fcfs"}]
    assert "policy      round-robin" in finish(middle.spawn([TANDEM, "status"]))


def test_what_is_none_is_refused_with_what_there_is(middle):
    assert "interactive, round-robin" in refused(middle, "gpu0", "quickest")
    assert "there is gpu0" in refused(middle, "gpu1", "fcfs")
    assert "tandem policy gpu0 fcfs" in refused(middle, "fcfs")
    assert "interactive" in policy(middle)


def test_without_a_daemon_there_is_nothing_to_change(make_card):
    assert "no daemon runs" in refused(make_card(), "gpu0", "fcfs")


def test_who_waits_under_fcfs_gets_a_turn_once_there_are_turns(middle):
    first = DeviceProgram(middle, [TANDEM, "run", "--name", "first", "--"])
    second = DeviceProgram(middle, [TANDEM, "run", "--name", "second", "--"])
    policy(middle, "gpu0", "fcfs")
    first.ask("fill 1")
    assert first.ask("steady kernel 1000 2") == "running"
    second.tell("fill 2")
    wait_until(lambda: waits(middle, "second"), second.process, "the second one waits")
    policy(middle, "gpu0", "round-robin")
    assert len(second.line()) > 0
    assert first.ask("end") == "ended"


def waits(card, name):
    return any(each["waits_for"] for each in card.sessions() if each["name"] == name)
