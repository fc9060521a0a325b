"""`%%gpu` in a notebook that is alone on its card."""

import pytest


@pytest.fixture
def notebook(open_notebook):
    return open_notebook("anna")


def test_a_cell_runs_as_any_other(notebook):
    assert notebook.run("%%gpu\n1 + 1").value == "2"
    assert notebook.value("_") == "2"
    assert notebook.run("%%gpu\nimport asyncio\nawait asyncio.sleep(0)\n'awaited'").value == "'awaited'"
    assert "loop" in notebook.run("%%gpu\n%timeit -n1 -r1 pass").texts("stdout")[0]
    assert notebook.run("%%gpu").status == "ok"
    assert notebook.run("%%gpu\nx = 3").lines == []  # it has not waited
    assert notebook.value("x") == "3"


def test_the_lease_lasts_as_long_as_the_cell(notebook):
    assert notebook.run("%%gpu\nimport tandem\ntandem.status().leases").value == "1"
    assert notebook.value("tandem.status().leases") == "0"
    ran = notebook.run("%%gpu\nx = 5\n1/0")
    assert (ran.status, ran.name) == ("error", "ZeroDivisionError")
    assert len(ran.texts("error")) == 1
    assert "In [" in ran.texts("error")[0] and "interactiveshell" not in ran.texts("error")[0]
    assert notebook.value("x, tandem.status().leases") == "(5, 0)"


def test_a_limit_and_an_interrupt_end_the_cell_and_nothing_else(notebook):
    notebook.take_memory(32 << 20)
    ran = notebook.run("%%gpu -t 200ms\nimport time\nx = 1\ntime.sleep(300)")
    assert ran.name == "TimeLimitExceeded"
    assert "200 ms" in ran.text
    notebook.begin("%%gpu\nx = 2\nprint('sleeps', flush=True)\ntime.sleep(300)")
    notebook.until(lambda: notebook.ran.texts("stdout"), "the cell sleeps")
    notebook.interrupt()
    assert notebook.end().name == "KeyboardInterrupt"
    assert notebook.run("%%gpu\nmemory.work(1000)\nx, memory.wrong_words()").value == "(2, 0)"


def test_the_limit_of_a_cell_that_awaits_ends_the_cell_and_not_the_kernel(notebook):
    ran = notebook.run("%%gpu -t 200ms\nimport asyncio, time\nx = 1\nawait asyncio.sleep(300)")
    assert ran.name == "TimeLimitExceeded" and "TimeLimitExceeded" in ran.texts("error")[0]
    ran = notebook.run("%%gpu -t 200ms\nawait asyncio.sleep(0)\ntime.sleep(300)")
    assert ran.name == "TimeLimitExceeded"
    assert notebook.run("raise asyncio.CancelledError").name == "CancelledError"
    assert notebook.value("x") == "1"


def test_a_cell_that_catches_its_limit_ends_all_the_same(notebook):
    caught = "import time\ntry: time.sleep(300)\nexcept Exception: x = 7"
    for last in ("pass", "time.sleep(300)"):
        ran = notebook.run(f"%%gpu -t 200ms\n{caught}\n{last}")
        assert ran.name == "TimeLimitExceeded"
        assert len(ran.texts("error")) == 1 and "TimeLimitExceeded" in ran.texts("error")[0]
    assert notebook.value("x") == "7"


def test_another_cell_magic_may_follow(notebook):
    assert notebook.run("%%gpu\n%%capture caught\nprint(1 + 1)").status == "ok"
    assert notebook.value("caught.stdout") == "'2\\n'"


def test_a_terminal_reads_on_after_the_magic(notebook):
    check = "get_ipython().check_complete({!r})[0]"
    assert notebook.value(check.format("%%gpu")) == "'incomplete'"
    assert notebook.value(check.format("%%gpu\n1\n\n")) == "'complete'"


def test_mistakes_are_told_in_one_line_and_the_cell_does_not_run(notebook):
    for words, told in (
        ("-w 5x", "'5x' is no time"),
        ("--mem 8", "'8' is no size"),
        ("--nonsense", "%%gpu has no option --nonsense; `%%gpu --help` lists"),
        ("--limt 3s", "%%gpu has no option --limt; did you mean --limit?"),
        ("-t 0.2", "'0.2' has no unit; write for example '0.2s'"),
        ("'", "No closing quotation"),
    ):
        ran = notebook.run(f"%%gpu {words}\nran = True")
        assert ran.name == "UsageError"
        assert told in ran.text and "\n" not in ran.texts("error")[0]
    ran = notebook.run("%%gpu --mem 100G\nran = True")
    assert ran.name == "TooLarge" and "tandem limit" in ran.text
    assert notebook.value("'ran' in globals()") == "False"
    assert "examples:" in notebook.run("%%gpu --help\nran = True").texts("stdout")[0]
    assert notebook.value("'ran' in globals()") == "False"


def test_the_line_magic_shows_and_releases(notebook):
    assert "No cell has run" in notebook.run("%gpu log").texts("stdout")[0]
    assert "not used yet" in notebook.run("%gpu").texts("stdout")[0]
    notebook.take_memory(32 << 20)
    shown = notebook.run("%gpu status").texts("stdout")[0]
    assert "held until another program needs it; 32 MiB on the card" in shown and "anna" in shown
    assert "waited" in notebook.run("%gpu log").texts("stdout")[0]
    assert "leaves the card" in notebook.run("%gpu release").texts("stdout")[0]
    wait = "while tandem.status().resident_bytes: pass"
    assert notebook.run(f"import tandem\n{wait}\ntandem.status().swapped_bytes >> 20").value == "32"
    assert notebook.run("%%gpu\nmemory.wrong_words()").value == "0"


def test_a_kernel_without_tandem_says_so_once_and_runs(open_notebook):
    notebook = open_notebook("bare", shared=False, extension=False)
    hint = notebook.run("%load_ext tandem").texts("stdout")[0]
    assert "tandem jupyter install --user" in hint
    ran = notebook.run("%%gpu\n3")
    assert (ran.value, ran.shown) == ("3", [("execute_result", "3")])


def test_the_session_is_named_and_idle_after_the_cell(notebook):
    notebook.take_memory(32 << 20)
    notebook.until(lambda: notebook.session["state"] == "idle", "the session is idle")
