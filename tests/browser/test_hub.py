"""JupyterHub with two users on one card that cannot hold the memory of both."""

import lesson
import pytest
from browser import PATIENCE_S
from harness import MIB, wait_until
from lesson import COUNT, FOUND, NAME, ROUNDED, ROUNDS, TAKE


@pytest.fixture(scope="module")
def users(machine, browser):
    """The pages of both users, whose kernels have taken memory."""
    with lesson.two_users(machine, browser) as pages:
        for page in pages:
            assert page.kernel == "Python 3 (shared GPU)"
            lesson.take_memory(page)
        yield pages


@pytest.fixture
def no_turns(machine):
    """No cell interrupts another."""
    machine.run("tandem", "policy", "all", "fcfs")
    yield
    machine.run("tandem", "policy", "all", "interactive")


def test_two_users_overflow_one_card_and_both_get_right_results(machine, users):
    for page in users:
        page.begin(ROUNDS)
    for page in users:
        assert ROUNDED in page.end(ROUNDS)
    listed = machine.run("tandem", "ps")
    sessions = [machine.session(page.user) for page in users]
    for page, session in zip(users, sessions):
        assert f" {page.user} " in listed, listed
        assert session["limit_bytes"] == 170 * MIB
        assert session["in_bytes"] > 0
    assert sum(session["allocated_bytes"] for session in sessions) > 256 * MIB


def test_a_waiting_cell_says_whom_it_waits_for_and_then_for_how_long(
    machine, users, no_turns, pictures
):
    anna, ben = users
    with lesson.held_by(machine, anna):
        ben.begin(COUNT)
        line = ben.until_shown(COUNT, "in line")
        assert line.startswith("Waiting for gpu0: 1st in line") and "; anna holds it." in line
        assert "\n" not in line
        ben.screenshot(pictures / "waiting-page.png")
        ben.screenshot(pictures / "waiting-cell.png", TAKE, COUNT)
    shown = ben.end(COUNT)
    assert "Waiting" not in shown and "Waited " in shown and FOUND in shown
    ben.screenshot(pictures / "waited-page.png")


def test_a_cell_that_is_interrupted_leaves_the_line(machine, users, no_turns, pictures):
    anna, ben = users
    with lesson.held_by(machine, anna):
        ben.begin(COUNT)
        ben.until_shown(COUNT, "in line")
        ben.do("click", selector="button[data-jupyter-action='jupyter-notebook:interrupt-kernel']")
        shown = ben.end(COUNT)
        assert "Left the line." in shown and "KeyboardInterrupt" in shown and "Waiting" not in shown
        ben.screenshot(pictures / "interrupted-page.png")
    assert FOUND in ben.run(COUNT)


def test_a_closed_tab_keeps_its_kernel_and_a_stopped_server_ends_it_alone(machine, users):
    anna, ben = users
    anna.begin(ROUNDS)
    anna.do("close")
    wait_until(lambda: machine.session("anna")["state"] == "idle", None, "anna's cell ends", PATIENCE_S)
    assert FOUND in ben.run(COUNT)
    anna.open_notebook(NAME)  # the same kernel, with its variables
    assert FOUND in anna.run(COUNT)
    ben.begin(ROUNDS)
    anna.do("open", url=f"{anna.url}/hub/home", settled=True)
    anna.do("click", selector="#stop")
    wait_until(lambda: machine.session("anna") is None, None, "anna's kernel ends", PATIENCE_S)
    assert ROUNDED in ben.end(ROUNDS)
