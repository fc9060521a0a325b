"""Several notebooks on one card that cannot hold the memory of two."""

import os
import signal
from types import SimpleNamespace

import pytest

import remote_fixtures  # noqa: F401  puts the package on the path
from harness import MIB, wait_until
from tandem.ipython.display import CellDisplay
from tandem.lease import Wait

HOLD = "%%gpu\nprint('holds', flush=True)\nwhile True: memory.work(20_000_000)"


@pytest.fixture
def held(card):
    """60 % of the card, in whole chunks."""
    return card.gpu()["budget_bytes"] * 6 // 10 // (2 * MIB) * (2 * MIB)


def hold(notebook):
    """The notebook works until it is interrupted or killed; it has the card."""
    notebook.begin(HOLD)
    notebook.until(lambda: notebook.ran.texts("stdout"), "the cell holds the card")


def right(notebook):
    return notebook.run("%%gpu\nmemory.work(10_000_000)\nmemory.wrong_words()").value == "0"


def test_three_notebooks_find_their_memory_and_their_variables(open_notebook, held):
    notebooks = [open_notebook(name) for name in ("anna", "ben", "cleo")]
    for number, notebook in enumerate(notebooks):
        notebook.take_memory(held)
        notebook.run(f"number = {number}")
    for _ in range(3):
        for notebook in notebooks:
            notebook.begin("%%gpu\nmemory.work(20_000_000)\nnumber, memory.advances")
        for number, notebook in enumerate(notebooks):
            assert notebook.end().value.startswith(f"({number}, ")
    assert all(right(notebook) for notebook in notebooks)


def test_a_cell_that_waits_says_so_and_leaves_the_line_at_an_interrupt(card, open_notebook, held):
    busy, waiting = open_notebook("busy"), open_notebook("anna")
    busy.take_memory(held)
    waiting.take_memory(held)
    card.tandem("policy", "all", "fcfs")  # none interrupts another
    hold(busy)
    waiting.begin("%%gpu\nran = True")
    line = waiting.until_waiting()
    assert line.startswith("Waiting for gpu0: 1st in line") and "busy holds it" in line
    assert line.endswith("Interrupt the kernel to leave the line.")
    assert waiting.session["state"] == "waiting"
    waiting.interrupt()
    ran = waiting.end()
    assert ran.name == "KeyboardInterrupt"
    assert ran.lines[-1] == "Left the line."
    wait_until(lambda: waiting.session["state"] != "waiting", None, "it has left the line")
    # A kernel handles the interrupts of cells that await in another way.
    waiting.begin("%%gpu\nimport asyncio\nawait asyncio.sleep(0)\nran = True")
    waiting.until_waiting()
    waiting.interrupt()
    assert waiting.end().name == "KeyboardInterrupt"
    ran = waiting.run("%%gpu -w 200ms\nran = True")
    assert ran.name == "WaitTimeout" and "tandem status" in ran.text
    assert waiting.value("'ran' in globals()") == "False"
    busy.interrupt()
    assert busy.end().name == "KeyboardInterrupt"
    assert right(waiting) and right(busy)


def test_an_interrupt_as_the_line_appears_leaves_no_old_line_on_the_page(monkeypatch):
    page = []

    class InterruptedOnce:
        """In the place of IPython's: an interrupt comes when the first line is on the page."""

        def display(self, data, raw):
            page.append(data["text/plain"])
            raise KeyboardInterrupt

        def update(self, data, raw):
            page[-1] = data["text/plain"]

    monkeypatch.setattr("IPython.display.DisplayHandle", InterruptedOnce)
    display = CellDisplay(SimpleNamespace(kernel=None))
    with pytest.raises(KeyboardInterrupt):
        display.on_wait(Wait(2.0, 1, None, "busy", 1, "waiting", "turn", "gpu0"))
    assert page[0].startswith("Waiting for gpu0: 1st in line; busy holds it")
    display.on_refused()
    assert page == ["Left the line."]


def test_a_cell_that_has_waited_says_for_how_long(card, open_notebook, held):
    busy, waiting = open_notebook("busy"), open_notebook("anna")
    busy.take_memory(held)
    waiting.take_memory(held)
    card.tandem("policy", "all", "fcfs")
    hold(busy)
    waiting.begin("%%gpu\nmemory.work(1000)\nmemory.wrong_words()")
    waiting.until_waiting()
    busy.interrupt()
    ran = waiting.end()
    assert ran.value == "0"
    assert ran.lines[-1].startswith("Waited ") and ran.lines[-1].endswith(" on gpu0.")
    busy.end()


def test_a_wait_in_the_middle_of_a_cell_is_shown(card, open_notebook, held):
    busy, waiting = open_notebook("busy"), open_notebook("anna")
    busy.take_memory(held)
    waiting.take_memory(held)
    card.tandem("policy", "all", "fcfs")
    hold(busy)
    # The waiting call holds no lock of Python's.
    waiting.begin("memory.work(1000)\nmemory.wrong_words()")
    line = waiting.until_waiting()
    assert line == "Waiting for gpu0: 1st in line; busy holds it. The cell goes on by itself."
    busy.interrupt()
    ran = waiting.end()
    assert ran.value == "0" and ran.lines[-1].startswith("Waited ")
    busy.end()


def test_a_cell_that_is_suspended_says_so(card, open_notebook):
    notebook = open_notebook("anna")
    notebook.take_memory(32 * MIB)
    notebook.begin(HOLD)
    notebook.until(lambda: notebook.ran.texts("stdout"), "the cell holds the card")
    card.tandem("suspend", "anna")
    notebook.until(lambda: any("is suspended" in line for line in notebook.ran.lines), "it says so")
    assert "Interrupt" not in notebook.ran.lines[-1]
    card.tandem("resume", "anna")
    notebook.until(lambda: notebook.ran.lines[-1] == "Running on gpu0.", "it runs again")
    notebook.interrupt()
    assert notebook.end().name == "KeyboardInterrupt"
    assert right(notebook)


@pytest.mark.parametrize("end", ["kill", "close"])
def test_a_notebook_that_ends_does_not_hurt_the_others(open_notebook, held, end):
    victim, other = open_notebook("victim"), open_notebook("anna")
    victim.take_memory(held)
    other.take_memory(held)
    hold(victim)
    if end == "close":
        victim.close()
    else:
        os.kill(victim.session["pid"], signal.SIGKILL)
    assert right(other)


def test_a_notebook_that_is_stopped_keeps_its_memory_and_nothing_else(open_notebook, held):
    victim, other = open_notebook("victim"), open_notebook("anna")
    victim.take_memory(held)
    other.take_memory(16 * MIB)  # there is room beside the victim's
    hold(victim)
    pid = victim.session["pid"]
    os.kill(pid, signal.SIGSTOP)
    assert right(other)
    os.kill(pid, signal.SIGCONT)
    victim.interrupt()
    assert victim.end().name == "KeyboardInterrupt"
    assert right(victim)


def test_a_daemon_that_is_replaced_under_running_notebooks_is_not_noticed(card, open_notebook, held):
    notebooks = [open_notebook(name) for name in ("anna", "ben")]
    for notebook in notebooks:
        notebook.take_memory(held)
    before = card.ask("status")["pid"]
    card.daemon.kill()
    card.daemon.wait()
    # A `tandem run` starts the next one.
    wait_until(lambda: (card.ask("status") or {"pid": before})["pid"] != before, None, "another one")
    for notebook in notebooks:
        assert right(notebook)
