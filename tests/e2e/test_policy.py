"""Policies and shares of GPU time: shown, changed while programs run, and refused where they are none."""

import json
import os

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
    listed = {each["name"] for each in shown["policies"]}
    assert {"fcfs", "interactive", "round-robin"} <= listed
    assert "nvshare" not in listed and "nvshare" not in text  # for comparisons only, but accepted
    assert policy(middle, "gpu0", "nvshare") == "gpu0: nvshare, before interactive\n"


def test_it_is_changed_and_says_for_which_gpu(middle):
    assert policy(middle, "gpu0", "fcfs") == "gpu0: fcfs, before interactive\n"
    assert policy(middle, "all", "fcfs") == "gpu0: fcfs, as before\n"
    changed = json.loads(policy(middle, "0", "round-robin", "--json"))
    assert changed["gpus"] == [{"index": 0, "policy": "round-robin", "before": "fcfs"}]
    assert "policy      round-robin" in finish(middle.spawn([TANDEM, "status"]))


def test_what_is_none_is_refused_with_what_there_is(middle):
    assert "interactive, fair, priority, round-robin" in refused(middle, "gpu0", "quickest")
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


def share(card, *words):
    return finish(card.spawn([TANDEM, "share", *words]))


def test_a_share_is_given_shown_and_counts_where_the_policy_is_fair(middle):
    assert share(middle) == "No program shares a GPU now.\n"
    program = DeviceProgram(middle, [TANDEM, "run", "--name", "mine", "--"])
    said = share(middle, "mine", "2")
    assert "2, before 1\n" in said
    assert "tandem policy gpu0 fair" in said
    policy(middle, "gpu0", "fair")
    changed = json.loads(share(middle, "mine", "30%", "--json"))
    assert [each["share"] for each in changed["changed"]] == ["30%"]
    assert changed["gpus_without_shares"] == []
    uid = str(os.getuid())
    assert "40%, before 1" in share(middle, "--user", uid, "40%")
    shown = json.loads(share(middle, "--json"))["sessions"]
    assert [(each["share"], each["user_share"]) for each in shown] == [("30%", "40%")]
    assert "30%" in share(middle)
    assert program.ask("fill 1")


def test_what_is_no_share_is_refused(middle):
    program = DeviceProgram(middle, [TANDEM, "run", "--name", "mine", "--"])
    for words, said, status in [
        (("mine", "much"), "is no share", 2),
        (("other", "2"), "no session or run is called", 1),
        (("mine",), "say whose and what", 2),
        (("--user", "unknown-user", "2"), "there is no user", 2),
    ]:
        process = middle.spawn([TANDEM, "share", *words])
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == status, out
        assert said in err
    assert program.ask("fill 1")


def test_opportunistic_work_waits_while_production_works_and_then_runs(middle):
    policy(middle, "gpu0", "priority")
    production = DeviceProgram(middle, [TANDEM, "run", "--name", "serve", "--class", "production", "--"])
    command = [TANDEM, "run", "--name", "search", "--class", "opportunistic", "--"]
    opportunistic = DeviceProgram(middle, command)
    production.ask("halves 1000")  # one kernel until `release`, so that production has no pause
    production.ask("begun")
    opportunistic.tell("fill 2")
    wait_until(lambda: waits(middle, "search"), opportunistic.process, "it waits")
    sessions = {each["name"]: each for each in middle.sessions()}
    assert sessions["serve"]["class"] == "production"
    assert sessions["search"]["class"] == "opportunistic"
    assert production.ask("release") == "released"
    finish(production.process)  # what it has on the card stays there until then
    assert opportunistic.line().startswith("digest")


def test_a_class_that_is_none_is_refused_with_those_there_are(middle):
    process = middle.spawn([TANDEM, "run", "--class", "urgent", "--", "/bin/true"])
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2, out
    assert "production, interactive, batch, opportunistic" in err


def waits(card, name):
    return any(each["reason"] for each in card.sessions() if each["name"] == name)
