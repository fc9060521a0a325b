"""What `--json` prints is what docs/json.md says: every key, state and reason, and their units."""

import datetime
import json
import re

import pytest

from harness import SANITIZED, SOURCE, TANDEM, finish, train, wait_until
from serving import Serve

PAGE = (SOURCE / "docs" / "json.md").read_text()
FROM_WHY = (SOURCE / "src" / "core" / "why_names.h").read_text()
FROM_STANDING = (SOURCE / "src" / "service" / "standing.cc").read_text()


def section(title):
    return re.split(r"^##+ ", PAGE.split(title + "\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


VALUES = {"null", "turns", "together", "fair", "setting", "host", "soft", "cuda", "ok", "note", "warning", "problem"}  # of keys, in the tables


def documented(title):
    """The keys, or codes, in the tables of a section."""
    rows = [line for line in section(title).splitlines() if line.startswith("| `")]
    return {word for row in rows for word in re.findall(r"`(\w+)`", row)} - VALUES


def keys(value):
    if isinstance(value, list):
        return set().union(*map(keys, value))
    if isinstance(value, dict):
        return set(value) | keys(list(value.values()))
    return set()


def leaves(value, key=None):
    if isinstance(value, dict):
        for name, member in value.items():
            yield from leaves(member, name)
    elif isinstance(value, list):
        for member in value:
            yield from leaves(member, key)
    else:
        yield key, value


@pytest.fixture
def scene(make_card):
    """Two programs that take turns, and a run without a session."""
    card = make_card()
    card.start_daemon()
    card.shared(train("160M", 100000), "--name", "film")
    waiter = card.shared(train("160M", 100000), "--name", "mnist")
    wait_until(lambda: len(card.sessions()) == 2, waiter, "both are there")
    card.shared(["sleep", "1000"], "--name", "shell")
    wait_until(lambda: card.ask("sessions")["runs"], None, "the run is listed")
    return card


COMMANDS = [
    ("tandem ps", ["ps"]),
    ("tandem ps", ["limit", "mnist", "--memory", "170M"]),
    ("tandem status", ["status"]),
    ("tandem handovers", ["handovers"]),
    ("tandem policy", ["policy"]),
    ("tandem policy", ["policy", "gpu0", "fair"]),
    ("tandem share", ["share"]),
    ("tandem share", ["share", "mnist", "2"]),
    ("tandem gpu soft", ["gpu", "soft"]),
    ("tandem doctor", ["doctor"]),
    ("tandem plan", ["plan", "--users", "3", "--idle-timeout", "1h", "--bound", "2m"]),
    ("tandem report", ["report", "--by", "hour,user,project,run,gpu"]),
    ("tandem report", ["report", "--by", "day"]),
    ("tandem lease", ["lease", "create", "--job", "17", "--user", "root", "--gpu", "gpu0", "--memory-request", "8M"]),
    ("tandem lease", ["lease", "list"]),
    ("tandem lease", ["lease", "end", "--job", "17"]),
]


def test_every_key_is_documented(scene):
    finish(scene.shared(train("20M", 1)))
    accounts = lambda: json.loads(scene.tandem("report", "--by", "run", "--json"))["rows"]
    wait_until(accounts, None, "the accounts have what it used")
    wait_until(scene.handovers, None, "the programs take turns")
    printed = {}
    for page, words in COMMANDS:
        answer = json.loads(finish(scene.spawn([TANDEM, *words, "--json"])))
        printed.setdefault(page, set()).update(keys(answer))
        for key, value in leaves(answer):
            if key.endswith(("_s", "_bytes")) and value is not None:
                assert isinstance(value, (int, float)) and not isinstance(value, bool), key
            if key in ("since", "at", "created"):
                assert datetime.datetime.strptime(value, "%Y-%m-%dT%H:%M:%S.%fZ"), key
            if isinstance(value, int):
                assert abs(value) < 1 << 53 or key.endswith("_bytes"), key
    for page, found in printed.items():
        assert found == documented(f"## `{page}`"), page


@pytest.mark.skipif(SANITIZED, reason="tandem serve is not built there")
def test_the_address_of_the_page_is_documented(card):
    assert set(Serve(card).said) == documented("## `tandem serve`")


def test_states_and_reasons_are_documented():
    states, reasons = re.findall(r"std::array<.*?= \{(.*?)\};", FROM_STANDING, re.DOTALL)
    assert set(re.findall(r'\{"(\w+)",', states)) == documented("### States") - {"reason_code"}
    assert set(re.findall(r'"(\w+)"', reasons)) == documented("### Reasons") - {"place"}


    assert set(re.findall(r'return \{"(\w+)",', FROM_WHY)) == documented("### Reasons of a hand-over") - {"reason_code"}


@pytest.mark.parametrize("memory, moves", [("160M", True), ("32M", False)])
def test_a_hand_over_says_why_the_lease_was_taken(make_card, memory, moves):
    """One program at a time has the card, in turns of a second. Only the large ones have to leave it."""
    card = make_card()
    card.start_daemon("--policy", "nvshare", "--time-scale", "30")
    programs = [card.shared(train(memory, 1000000)) for _ in range(2)]

    def ended():
        rows = json.loads(card.tandem("handovers", "--json"))["handovers"]
        ours = [row for row in rows if (row["evicted_bytes"] + row["in_bytes"] > 0) == moves]
        return next((row for row in ours if row["reason_code"] == "turn_ended"), None)

    row = wait_until(ended, programs[0], "a turn ends")
    assert row["reason"] == "its turn was over"
    assert {row["to"], *row["from"]} == {session["id"] for session in card.sessions()}
    assert (row["out_bytes"] > 0) <= moves and not row["given_up"]


def test_a_waiting_session_says_for_what_and_since_when(scene):
    def turn():
        by_reason = {s["reason_code"] or s["state"]: s for s in scene.sessions()}
        return by_reason if {"running", "turn"} <= set(by_reason) else None

    seen = wait_until(turn, None, "one works while the other waits for its turn")
    running, waiting = seen["running"], seen["turn"]
    (shell,) = scene.ask("sessions")["runs"]
    assert (running["state"], running["held_by"]) == ("running", [])
    assert (waiting["state"], waiting["place"]) == ("waiting", 1)
    assert waiting["held_by"] == [running["id"]] and waiting["waited_s"] > 0
    assert shell["state"] == "unused"
    since = datetime.datetime.strptime(waiting["since"], "%Y-%m-%dT%H:%M:%S.%fZ")
    now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
    assert datetime.timedelta(0) <= now - since < datetime.timedelta(hours=1)
