"""`tandem ps` fits its screen: it leaves columns out before a line would wrap, and colours states where it may."""

import re

import pytest

from harness import TANDEM, finish, train, wait_until

NATURAL = 1000  # columns; more than the table takes


@pytest.fixture
def listed(card):
    """A card with a suspended session and a run without one, which stay as they are."""
    program = card.shared(train("64M", 1000000), "--name", "film")
    wait_until(lambda: card.session_of(program), program, "it has a session")
    finish(card.spawn([TANDEM, "suspend", "film"]))
    wait_until(lambda: card.sessions()[0]["state"] == "suspended", program, "it is suspended")
    shell = card.shared(["sleep", "1000"], "--name", "shell")
    wait_until(lambda: card.ask("sessions")["runs"], shell, "the run is listed")
    card.env.pop("COLUMNS", None)
    return card


def check_fit(text, natural, columns):
    lines = text.splitlines()
    assert max(map(len, natural)) > columns and max(map(len, lines)) <= columns, text
    assert len(lines) == len(natural) == 3
    titles, all_titles = lines[0].split(), natural[0].split()
    assert {"ID", "NAME", "STATE"} <= set(titles) < set(all_titles)
    assert "film" in lines[1] and "suspended" in lines[1] and "shell" in lines[2]


@pytest.mark.parametrize("columns", [80, 60])
def test_columns_are_left_out_and_no_line_wraps(listed, columns):
    natural = listed.tandem("ps").splitlines()
    check_fit(listed.on_a_terminal("ps", NO_COLOR="1", columns=columns), natural, columns)
    check_fit(listed.on_a_terminal("ps", NO_COLOR="1", COLUMNS=str(columns), columns=NATURAL), natural, columns)
    listed.env["COLUMNS"] = str(columns)
    check_fit(listed.tandem("ps"), natural, columns)


def test_states_have_colours_where_the_terminal_has_any(listed):
    shown = listed.on_a_terminal("ps", columns=NATURAL)
    assert re.findall(r"\x1b\[(\d+)m(\w+)\x1b\[0m", shown) == [("35", "suspended"), ("2", "unused")]
    for refusal in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in listed.on_a_terminal("ps", columns=NATURAL, **refusal), refusal
    assert "\x1b" not in listed.tandem("ps")
