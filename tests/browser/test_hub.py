"""JupyterHub with two users on one card that cannot hold the memory of both.

The notebook is examples/notebooks/cells.ipynb with 150 MiB, and two more cells.
"""

import nbformat
import pytest
from browser import PATIENCE_S, Page
from harness import MIB, SOURCE, wait_until
from machine import PASSWORD, USERS

MEMORY, LONG = "170M", "1h"
SETUP, TAKE, COUNT, STATUS = 1, 3, 5, 7  # the cells of the example
HOLD = """%%gpu
import os
while not os.path.exists("enough"):
    call("cuMemsetD8_v2", memory, ctypes.c_ubyte(7), size)
f"{count(7)} MiB\""""
ROUNDS = """%%gpu
for number in range(40):
    call("cuMemsetD8_v2", memory, ctypes.c_ubyte(number), size)
    assert count(number) == mib, number
mine = number
f"{count(mine)} MiB of {mine}\""""
HOLD_CELL, ROUNDS_CELL = 9, 10
FOUND = "'150 of 150 MiB are as they were'"


def write_notebook(machine, user, name="lesson.ipynb", mib=150):
    notebook = nbformat.read(SOURCE / "examples/notebooks/cells.ipynb", as_version=4)
    take = notebook.cells[TAKE]
    take.source = take.source.replace("mib = 64", f"mib = {mib}")
    for number, source in enumerate((HOLD, ROUNDS)):
        notebook.cells.append(nbformat.v4.new_code_cell(source, id=f"test-{number}"))
    machine.write(user, name, nbformat.writes(notebook))


@pytest.fixture
def users(machine, browser):
    """Starts a Hub and opens the notebook of each user: users(memory=MEMORY, idle=LONG).

    `changes`: of the printed configuration, old text to new.
    """
    pages = []

    def start(memory=MEMORY, idle=LONG, changes=()):
        url = machine.start_hub(memory, idle, dict(changes))
        for name in USERS:
            write_notebook(machine, name)
            (machine.root / "home" / name / "enough").unlink(missing_ok=True)
            page = Page(browser, name, url)
            page.log_in(PASSWORD)
            page.open_notebook("lesson.ipynb")
            pages.append(page)
        return pages

    yield start
    for page in pages:
        page.forget()
    machine.stop_hub()
    wait_until(lambda: not machine.sessions(), None, "the kernels end", PATIENCE_S)
    machine.run("tandem", "policy", "all", "interactive")


def take_memory(page):
    assert page.kernel == "Python 3 (shared GPU)"
    for cell in (SETUP, TAKE):
        assert page.run(cell) == ""


def test_two_users_overflow_one_card_and_both_get_right_results(machine, users, pictures):
    anna, ben = users()
    take_memory(anna)
    take_memory(ben)
    # The cells of both at once.
    anna.begin(ROUNDS_CELL)
    ben.begin(ROUNDS_CELL)
    for page in (anna, ben):
        assert "'150 MiB of 39'" in page.end(ROUNDS_CELL)
    listed = machine.run("tandem", "ps")
    for user in USERS:
        assert f" {user} " in listed, listed
        session = machine.session(user)
        assert session["limit_bytes"] == 170 * MIB
    assert sum(machine.session(user)["allocated_bytes"] for user in USERS) > 256 * MIB
    assert any(machine.session(user)["swapped_bytes"] for user in USERS)


def test_a_waiting_cell_says_whom_it_waits_for_and_then_for_how_long(machine, users, pictures):
    anna, ben = users()
    take_memory(anna)
    take_memory(ben)
    machine.run("tandem", "policy", "all", "fcfs")  # none interrupts another
    anna.begin(HOLD_CELL)
    wait_until(lambda: machine.session("anna")["state"] == "running", None, "anna's cell holds the card", PATIENCE_S)
    ben.begin(COUNT)
    line = ben.until_shown(COUNT, "in line")
    assert line.startswith("Waiting for gpu0: 1st in line") and "; anna holds it." in line
    assert "\n" not in line
    ben.screenshot(pictures / "waiting-page.png")
    ben.screenshot(pictures / "waiting-cell.png", TAKE, COUNT)
    machine.write("anna", "enough", "")
    assert "'150 MiB'" in anna.end(HOLD_CELL)
    shown = ben.end(COUNT)
    assert "Waiting" not in shown and "Waited " in shown and FOUND in shown
    ben.screenshot(pictures / "waited-page.png")
    anna.screenshot(pictures / "held-page.png")
