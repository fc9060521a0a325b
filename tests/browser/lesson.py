"""The notebook of both users: examples/notebooks/cells.ipynb with 150 MiB, and two more cells."""

import contextlib

import nbformat
from browser import PATIENCE_S, Page
from harness import SOURCE, wait_until
from machine import PASSWORD, USERS

NAME = "lesson.ipynb"
SETUP, TAKE, COUNT, HOLD, ROUNDS = 1, 3, 5, 9, 10  # numbers of cells
MIB_OF_EACH = 150  # of a card of 256
FOUND = "'150 of 150 MiB are as they were'"
HELD = "'150 MiB of 7'"
ROUNDED = "'150 MiB of 7 again'"
HOLD_CELL = """%%gpu
import os
while not os.path.exists("enough"):
    call("cuMemsetD8_v2", memory, ctypes.c_ubyte(7), size)
f"{count(7)} MiB of 7\""""
ROUNDS_CELL = """%%gpu
for number in range(8):
    call("cuMemsetD8_v2", memory, ctypes.c_ubyte(number), size)
    assert count(number) == mib, number
print(repr(f"{count(number)} MiB of {number} again"))
call("cuMemsetD8_v2", memory, ctypes.c_ubyte(7), size)"""


def write(machine, user):
    notebook = nbformat.read(SOURCE / "examples/notebooks/cells.ipynb", as_version=4)
    take = notebook.cells[TAKE]
    take.source = take.source.replace("mib = 64", f"mib = {MIB_OF_EACH}")
    for number, source in enumerate((HOLD_CELL, ROUNDS_CELL)):
        notebook.cells.append(nbformat.v4.new_code_cell(source, id=f"test-{number}"))
    machine.write(user, NAME, nbformat.writes(notebook))


@contextlib.contextmanager
def two_users(machine, browser, memory="170M", idle="1h", changes=()):
    """A Hub with that configuration, and the notebook of each user on a page.

    `changes`: of the printed configuration, old text to new.
    """
    url = machine.start_hub(memory, idle, dict(changes))
    pages = [Page(browser, user, url) for user in USERS]
    try:
        for page in pages:
            write(machine, page.user)
            page.log_in(PASSWORD)
            page.open_notebook(NAME)
        yield pages
    finally:
        for page in pages:
            page.forget()
        machine.stop_hub()
        wait_until(lambda: not machine.sessions(), None, "the kernels end", PATIENCE_S)


def run_silent(page, cell):
    """Runs a cell that prints nothing; on a busy machine lines below it may say that it waited."""
    shown = page.run(cell)
    lines = [line for line in shown.splitlines() if line.strip()]
    assert all(line.startswith(("Waited ", "tandem: ")) for line in lines), shown


def take_memory(page):
    for cell in (SETUP, TAKE):
        run_silent(page, cell)


@contextlib.contextmanager
def held_by(machine, page):
    """The user's cell holds the card meanwhile, and has found every byte at the end."""
    name = page.user
    page.begin(HOLD)
    running = lambda: machine.session(name)["state"] == "running"  # noqa: E731
    wait_until(running, None, f"the cell of {name} holds the card", PATIENCE_S)
    yield
    machine.write(name, "enough", "")
    assert HELD in page.end(HOLD)
    machine.remove(name, "enough")
