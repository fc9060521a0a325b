"""`tandem notebook run`: outputs, saves, exit states, signals, resume. Real kernels."""

import json
import os
import pty
import re
import shutil
import signal
import subprocess

import pytest
from run_fixtures import (
    BLOCK,
    DEAF,
    PATIENCE_S,
    PYTHON,
    SOURCE,
    desk,
    ended,
    gpu_desk,
    new_markdown_cell,
    tagged,
    wait_until,
)

__all__ = ["desk", "gpu_desk"]
PICTURE = (
    "import base64, IPython.display as d\n"
    "d.Image(base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgAB"
    "SK+kcQAAAABJRU5ErkJggg=='), format='png')"
)


def test_outputs_parameters_and_arguments(desk):
    desk.notebook(
        "a.ipynb",
        new_markdown_cell("# Title"),
        "import tandem\nprint(tandem.argv)",
        tagged("rate = 1", "parameters"),
        "",
        "import os, sys\nprint('rate', rate, name)\nprint('to err', file=sys.stderr)\nos.getcwd()",
        PICTURE,
        tagged("1/0", "raises-exception"),
    )
    (desk.lean / "debugpy.py").unlink()  # it writes about itself, where it is installed
    out, err = desk.run("a.ipynb", "x", "-p", "rate=0.5", "-r", "name=1", "--", "--epochs", "3")
    argv = [str(desk.path("a.ipynb")), "x", "--epochs", "3"]
    assert out.splitlines() == [
        str(argv), "rate 0.5 1", repr(str(desk.folder)),
        "[a picture, image/png: see the output notebook]",
    ]  # fmt: skip
    assert "to err\n" in err and "\x1b" not in err and "Debugger" not in err
    assert "tandem: the cell tagged `parameters` does not assign name\n" in err
    assert [f"cell {n} of 6" in err for n in range(1, 8)] == [True] * 6 + [False]
    saved = desk.load("a.out.ipynb")
    assert [cell.execution_count for cell in saved.cells if cell.cell_type == "code"] == [
        1, 2, 3, None, 4, 5, 6,
    ]  # fmt: skip
    assert saved.cells[3].metadata.tags == ["injected-parameters"]
    assert saved.metadata.tandem.state == "done" and saved.metadata.language_info.name == "python"
    assert desk.load("a.ipynb").cells[2].source == "rate = 1"  # the notebook is as it was


def test_a_failing_cell(desk):
    desk.notebook("a.ipynb", "print('one')", "raise ValueError('bad')", "print('three')")
    out, err = desk.run("a.ipynb", expect=1)
    assert out == "one\n" and "Traceback" in err
    assert "tandem: cell 2 of 3 failed: ValueError: bad\n" in err
    saved = desk.load("a.out.ipynb")
    assert saved.cells[1].outputs[0].ename == "ValueError"
    assert saved.metadata.tandem.state == "failed"
    out, err = desk.run("--allow-errors", "--quiet", "a.ipynb", expect=1)
    assert out == "one\nthree\n" and "cell 2 of 3 failed" in err and "cell 1 of 3" not in err


def test_a_kernel_that_ends(desk):
    desk.notebook("a.ipynb", "print('one')", "import os\nos.kill(os.getpid(), 9)", "print('three')")
    out, err = desk.run("a.ipynb", expect=1)
    assert out == "one\n"
    assert "tandem: the kernel ended in cell 2 of 3: killed by SIGKILL" in err
    assert desk.load("a.out.ipynb").cells[1].outputs[0].output_type == "error"


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_interrupts_the_cell_and_saves(desk, number, status):
    desk.notebook("a.ipynb", "print('one')", f"print('partly', flush=True)\n{BLOCK}", "print('no')")
    process = desk.start("notebook", "run", "--unshared", "a.ipynb")
    desk.until("begun", process)
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == status, err
    assert "KeyboardInterrupt" in err and "1 of 3 cells finished" in err
    assert desk.outputs("a.out.ipynb") == ["one\n", "partly\n", ""]
    assert desk.load("a.out.ipynb").metadata.tandem.state == "stopped"


def test_a_second_ctrl_c_ends_a_cell_that_ignores_the_first(desk):
    desk.notebook("a.ipynb", "print('one')", f"import os\nprint(os.getpid(), flush=True)\n{DEAF}")
    process = desk.start("notebook", "run", "--unshared", "a.ipynb")
    assert process.stdout.readline() == "one\n"
    kernel = int(process.stdout.readline())
    desk.until("begun", process)
    process.send_signal(signal.SIGINT)
    said = ""
    while "a second Ctrl-C ends it at once" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    wait_until(lambda: ended(kernel), None, "the kernel is gone")
    assert desk.outputs("a.out.ipynb") == ["one\n", f"{kernel}\n"]


def test_a_cell_that_runs_too_long(desk):
    desk.notebook("a.ipynb", BLOCK, "print('two')")
    out, err = desk.run("--timeout", "0.5", "a.ipynb", expect=1)
    assert out == "" and "cell 1 of 2 failed: it ran longer than 0.5 s (--timeout)" in err


def test_kill_in_the_middle_loses_one_cell_and_resume_goes_on(desk):
    cells = [
        tagged("n = 1", "parameters"),
        tagged("print('slow', n)\n_ = open('ran', 'a').write('x')", "skip-on-resume"),
        "import os\nprint(os.getpid())\nm = n + 1",
    ]
    last = "print(m, tandem_argv)"
    desk.notebook("a.ipynb", "from tandem import argv as tandem_argv", *cells, BLOCK, last)
    process = desk.start("notebook", "run", "--unshared", "a.ipynb", "word", "-p", "n=5")
    desk.until("begun", process)
    process.kill()
    out, _ = process.communicate(timeout=PATIENCE_S)
    kernel = out.splitlines()[1]
    wait_until(lambda: ended(kernel), None, "the kernel ends, too")
    saved = desk.load("a.out.ipynb")
    assert desk.outputs("a.out.ipynb") == ["", "", "", "slow 5\n", f"{kernel}\n", "", ""]
    assert saved.metadata.tandem.state == "running" and len(saved.metadata.tandem.finished) == 5

    desk.notebook("a.ipynb", "from tandem import argv as tandem_argv", *cells, "m += 1", last)
    out, err = desk.run("--resume", "a.ipynb")
    assert out == f"7 ['{desk.path('a.ipynb')}', 'word']\n"  # finished cells are not shown again
    assert "tandem: resuming at cell 6 of 7; running again" in err
    assert "cells 1–3, 5; not running again (tag skip-on-resume): cell 4" in err
    assert desk.path("ran").read_text() == "x"
    texts = desk.outputs("a.out.ipynb")
    assert texts[3] == "slow 5\n" and texts[4] != f"{kernel}\n"

    out, err = desk.run("--resume", "a.ipynb")
    assert out == "" and "all 7 cells are finished: nothing to run" in err
    _, err = desk.run("--resume", "a.ipynb", "-p", "n=6", expect=2)
    assert "cell 3, which had finished, has changed" in err


def test_resume_in_place_after_a_failure(desk):
    desk.notebook("a.ipynb", "print('one')", "raise ValueError")
    desk.run("--in-place", "a.ipynb", expect=1)
    saved = desk.load("a.ipynb")
    saved.cells[1].source = "print('two')"
    desk.path("a.ipynb").write_text(json.dumps(saved))
    out, _ = desk.run("--in-place", "--resume", "a.ipynb")
    assert out == "two\n" and desk.outputs("a.ipynb") == ["one\n", "two\n"]


FILL = """
try:
    with open("fill", "wb", 0) as file:
        while file.write(bytes(4096)):
            pass
except OSError:
    print("full")
"""


@pytest.mark.parametrize("freed, status", [("", 1), ("import os; os.remove('fill')", 0)])
def test_a_full_disk_keeps_the_old_file_and_a_later_save_mends_it(desk, freed, status):
    """The folder lies on a file system of 256 KiB, in a mount namespace of the test's own."""
    namespace = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "-r"]
    disk = desk.path("disk")
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if subprocess.run([*namespace, *mount], capture_output=True).returncode != 0:
        pytest.skip("this user may not mount a file system, not even in a namespace of its own")
    desk.notebook("a.ipynb", "print('one')", FILL, freed + "\nprint('three')")
    script = (
        f"{' '.join(mount)} && cp a.ipynb disk && {PYTHON} -m tandem notebook run --unshared "
        "disk/a.ipynb; status=$?; cp disk/a.out.ipynb saved.ipynb; ls -A disk >names; exit $status"
    )
    process = subprocess.run(
        [*namespace, "sh", "-c", script],
        cwd=desk.folder, env=desk.env, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert process.stdout == "one\nfull\nthree\n" and process.returncode == status, process.stderr
    assert process.stderr.count("cannot save") == 1 + (status != 0)
    assert "No space left on device; free some room" in process.stderr
    wanted = ["one\n", "", ""] if status else ["one\n", "full\n", "three\n"]
    assert desk.outputs("saved.ipynb") == wanted
    names = {"a.ipynb", "a.out.ipynb"} | ({"fill"} if status else set())
    assert set(desk.path("names").read_text().split()) == names


def test_progress_is_one_line_on_a_terminal(desk):
    desk.notebook("a.ipynb", "print('one')", "print('two')")
    main, terminal = pty.openpty()
    process = desk.start("notebook", "run", "--unshared", "a.ipynb", stderr=terminal)
    os.close(terminal)
    assert process.communicate(timeout=PATIENCE_S)[0] == "one\ntwo\n" and process.returncode == 0
    said = b""
    try:
        while piece := os.read(main, 65536):
            said += piece
    except OSError:  # the terminal's end
        os.close(main)
    lines = said.decode().splitlines()
    assert "\r\x1b[Kcell 1 of 2 · 0:00" in said.decode()
    assert [line for line in lines if line.startswith("tandem: cell")] == []
    assert lines[-1].endswith(f"tandem: done; saved in {desk.path('a.out.ipynb')}")


def test_a_closed_reader_does_not_stop_the_notebook(desk):
    desk.notebook("a.ipynb", "print('one')", "print('two')")
    reader, writer = os.pipe()
    os.close(reader)
    process = desk.start("notebook", "run", "--unshared", "a.ipynb", stdout=writer)
    os.close(writer)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert desk.outputs("a.out.ipynb") == ["one\n", "two\n"] and "BrokenPipe" not in err


def test_nohup_holds(desk):
    """A signal that the command was started to ignore stays ignored."""
    wait = "import os, time\nopen('begun', 'w')\nwhile not os.path.exists('go'): time.sleep(0.01)"
    desk.notebook("a.ipynb", wait, "print('two')")
    ignore = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)  # noqa: E731
    process = desk.start("notebook", "run", "--unshared", "a.ipynb", preexec_fn=ignore)
    desk.until("begun", process)
    process.send_signal(signal.SIGHUP)
    desk.path("go").touch()
    assert process.communicate(timeout=PATIENCE_S)[0] == "two\n" and process.returncode == 0


def test_a_notebook_that_runs_itself(desk):
    words = [PYTHON, "-m", "tandem", "notebook", "run", "--unshared", "a.ipynb"]
    run = f"subprocess.run({words}, capture_output=True, text=True)"
    desk.notebook("a.ipynb", f"import subprocess\nran = {run}\nprint(ran.returncode, ran.stderr)")
    out, _ = desk.run("a.ipynb")
    assert out.startswith("2 tandem: ") and "already running around this command" in out


@pytest.mark.parametrize(
    "words, message",
    [
        (["none.ipynb"], "cannot read .*none.ipynb: No such file"),
        (["text.ipynb"], "text.ipynb is not a notebook"),
        (["new.ipynb"], "has notebook format 5"),
        (["odd.ipynb"], "is not a valid notebook"),
        (["--kernel", "none", "a.ipynb"], "'none' is not installed; installed are: .*python3"),
        (["--output", "a.ipynb", "a.ipynb"], "use --in-place"),
        (["--output", "none/b.ipynb", "a.ipynb"], "cannot write into .*none: No such file"),
        (["--output", "b.txt", "a.ipynb"], "must end in .ipynb"),
        (["--cwd", "none", "a.ipynb"], "none does not exist"),
        (["--resume", "--output", "b.ipynb", "a.ipynb"], "was not written by `tandem notebook"),
        (["--resume", "--timestamp", "a.ipynb"], "name it by --output"),
        (["-f", "none.json", "a.ipynb"], "cannot read none.json"),
        (["--timeout", "0", "a.ipynb"], "not a positive number"),
        (["a.ipynb", "--epochs"], "has no option --epochs; .* follow after --"),
        (["--class", "urgent", "a.ipynb"], "is none of .*batch"),
        (["-p", "class=1", "a.ipynb"], "'class' is not a name of Python"),
    ],
)
def test_bad_input_is_said_before_anything_runs(desk, monkeypatch, capsys, words, message):
    desk.notebook("a.ipynb", "open('ran', 'w')")
    desk.notebook("b.ipynb", "1")
    desk.path("text.ipynb").write_text("hello")
    desk.path("new.ipynb").write_text('{"nbformat": 5, "nbformat_minor": 0, "cells": []}')
    desk.path("odd.ipynb").write_text('{"nbformat": 4, "nbformat_minor": 4, "cells": 3}')
    before = sorted(os.listdir(desk.folder))
    words = ["notebook", "run", "--unshared", *words]
    status, out, err = desk.call(monkeypatch, capsys, *words)
    assert status == 2 and out == ""
    assert re.search(message, err), err
    assert sorted(os.listdir(desk.folder)) == before


def test_a_kernel_that_cannot_start(desk):
    kernel = desk.path("data/kernels/broken")
    kernel.mkdir(parents=True)
    argv = [PYTHON, "-c", "import sys; sys.exit('no such library')", "{connection_file}"]
    spec = {"argv": argv, "display_name": "Broken", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(spec))
    desk.env["JUPYTER_PATH"] = str(desk.path("data"))
    desk.notebook("a.ipynb", "1")
    before = desk.notebook("a.out.ipynb", "of an earlier run").read_text()
    _, err = desk.run("--kernel", "broken", "a.ipynb", expect=1)
    assert desk.path("a.out.ipynb").read_text() == before
    assert "no such library" in err and "the kernel did not start: exit status 1" in err


def test_the_kernel_runs_under_tandem_and_ctrl_c_reaches_it_once(gpu_desk):
    """The notebook of the examples, then one that counts its interrupts."""
    desk = gpu_desk
    shutil.copy(SOURCE / "examples/notebooks/job.ipynb", desk.path("job.ipynb"))
    out, _ = desk.tandem("notebook", "run", "--memory", "64M", "-p", "steps=2", "job.ipynb")
    assert "step 2 of 2" in out and "64 MiB" in out
    count = (
        "import os, signal, pathlib\nseen = []\n"
        "signal.signal(signal.SIGINT, lambda *_: seen.append(1))\n"
        "pathlib.Path('begun').touch()\nwhile not seen: signal.sigtimedwait([], 0.05)\n"
        "signal.sigtimedwait([], 1)\nprint(os.environ['TANDEM_NAME'], len(seen))"
    )
    desk.notebook("count.ipynb", count)
    process = desk.start("notebook", "run", "count.ipynb")
    desk.until("begun", process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert out == "count 1\n" and process.returncode == 0, err  # its last cell has finished
