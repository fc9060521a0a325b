"""`%%gpu --where`: cells of a notebook that run in another process, by the magic."""

import os
import re
import select
import signal

import pytest
from harness import PATIENCE_S


@pytest.fixture
def notebook(open_notebook):
    """A notebook without a GPU of its own."""
    notebook = open_notebook("student", shared=False)
    notebook.run("numbers = [1, 2]\nsame = numbers")
    return notebook


def test_a_cell_there_changes_the_variables_here(notebook):
    ran = notebook.run("%%gpu --where worker\nnumbers.append(3)\nprint(len(numbers))\ntotal = sum(numbers)")
    assert ran.status == "ok", ran
    assert ran.texts("stdout") == ["3\n"]
    assert notebook.value("total, same is numbers, same") == "(6, True, [1, 2, 3])"


def test_an_error_there_is_one_traceback_here_and_changes_nothing(notebook):
    ran = notebook.run("%%gpu --where worker\nnumbers.append(3)\n1/0")
    assert (ran.status, ran.name) == ("error", "ZeroDivisionError")
    assert len(ran.texts("error")) == 1
    plain = re.sub(r"\x1b\[[0-9;]*m", "", ran.texts("error")[0])
    assert "----> 2 1/0" in plain and "tandem/remote" not in plain
    assert notebook.value("numbers") == "[1, 2]"


def test_all_cells_run_there_from_now_on_and_here_again(notebook):
    assert "worker" in notebook.run("%gpu use worker").texts("stdout")[0]
    here = notebook.value("__import__('os').getpid()")
    notebook.run("%%gpu\nimport os\nthere = os.getpid()")
    assert notebook.value("there") != here
    shown = notebook.run("%%gpu --dry-run -i numbers\nprint('runs')").texts("stdout")
    assert "numbers" in "".join(shown) and "runs" not in "".join(shown)
    notebook.run("%gpu use local")
    notebook.run("%%gpu\nimport os\nagain = os.getpid()")
    assert notebook.value("again") == here


def test_the_worker_ends_with_the_notebook(notebook):
    notebook.run("%%gpu --where worker\nimport os\nthere = os.getpid()")
    worker = os.pidfd_open(int(notebook.value("there")))
    os.kill(int(notebook.value("os.getpid()")), signal.SIGKILL)
    assert select.select([worker], [], [], PATIENCE_S)[0], "the worker ends"


def test_what_cannot_travel_is_named(notebook):
    notebook.run("log = open('/dev/null', 'w')")
    ran = notebook.run("%%gpu --where worker\nlog.write('x')")
    assert ran.status == "error" and "log" in ran.text
    assert notebook.run("%gpu fetch").name == "UsageError"


def test_options_that_a_cell_elsewhere_cannot_keep_are_refused(notebook):
    ran = notebook.run("%%gpu --where worker -w 10m\nnumbers.append(3)")
    assert ran.name == "UsageError" and "--wait has no effect on a cell that runs elsewhere" in ran.text
    assert notebook.value("numbers") == "[1, 2]"
