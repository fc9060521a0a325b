"""Notebooks in a folder of their own, and the commands that run them, for tests.

Everything is real: the commands are processes, the kernels are ipykernel's. A notebook shows how
far it came by files in its folder, so that tests wait for events.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

SOURCE = Path(__file__).resolve().parents[2]
PACKAGES = SOURCE / "python"
if str(PACKAGES) not in sys.path:
    sys.path.insert(0, str(PACKAGES))

from tandem.notebook import commands  # noqa: E402

# tests/notebook has a harness.py, too.
_spec = importlib.util.spec_from_file_location("e2e_harness", SOURCE / "tests/e2e/harness.py")
e2e = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(e2e)

PATIENCE_S = e2e.PATIENCE_S
wait_until = e2e.wait_until
PYTHON = "/usr/bin/python3"

BLOCK = "import pathlib, threading\npathlib.Path('begun').touch()\nthreading.Event().wait()"
# A cell that no interrupt ends.
DEAF = f"import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n{BLOCK}"


def tagged(source, *tags):
    """A code cell with tags."""
    return new_code_cell(source, metadata={"tags": list(tags)})


def ended(pid):
    """Whether a process has ended, reaped by its parent or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except FileNotFoundError:
        return True


class Desk:
    """A folder with notebooks, and a state folder of its own for jobs."""

    def __init__(self, root):
        self.folder, home = root / "desk", root / "home"
        self.folder.mkdir()
        # Without debugpy, which ipykernel imports where it is there, all starts are faster.
        self.lean = home / "lean"
        self.lean.mkdir(parents=True)
        (self.lean / "debugpy.py").write_text("raise ImportError('left out of tests')")
        self.records = home / "state" / "tandem" / "jobs"
        self.processes = []
        kept = {k: v for k, v in os.environ.items() if not k.startswith("TANDEM_")}
        self.env = {
            **kept,
            "XDG_STATE_HOME": str(home / "state"),
            "IPYTHONDIR": str(home / "ipython"),
            "JUPYTER_RUNTIME_DIR": str(home / "jupyter"),
            "PYTHONPATH": f"{PACKAGES}:{self.lean}",
        }

    def notebook(self, name, *cells):
        """Writes a notebook of code cells, or of cells as nbformat makes them. Returns its path."""
        cells = [new_code_cell(cell) if isinstance(cell, str) else cell for cell in cells]
        path = self.folder / name
        nbformat.write(new_notebook(cells=cells), path)
        return path

    def load(self, name):
        """The notebook in a file."""
        return nbformat.read(self.folder / name, as_version=4)

    def outputs(self, name):
        """What each code cell of a saved notebook printed."""
        cells = [cell for cell in self.load(name).cells if cell.cell_type == "code"]
        return ["".join(o.get("text", "") for o in cell.outputs) for cell in cells]

    def path(self, name):
        """A file of the folder."""
        return self.folder / name

    def start(self, *words, **options):
        """Starts `tandem WORDS`."""
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        process = subprocess.Popen(
            [PYTHON, "-m", "tandem", *map(str, words)],
            cwd=self.folder, env=self.env, text=True, stdin=subprocess.DEVNULL, **options,
        )  # fmt: skip
        self.processes.append(process)
        return process

    def tandem(self, *words, expect=0):
        """Runs `tandem WORDS`; its stdout and stderr."""
        process = self.start(*words)
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == expect, f"{words}: {process.returncode}\n{out}\n{err}"
        return out, err

    def call(self, monkeypatch, capsys, *words):
        """Runs `tandem WORDS` in this process: for what needs no kernel. Status, stdout, stderr."""
        root = argparse.ArgumentParser(prog="tandem")
        commands.add_commands(root.add_subparsers())
        monkeypatch.chdir(self.folder)
        for name in ("XDG_STATE_HOME", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
            monkeypatch.setenv(name, self.env[name])
        try:
            parsed = root.parse_args([str(word) for word in words])
            status = parsed.run(parsed)
        except SystemExit as end:
            status = end.code
        return (status, *capsys.readouterr())

    def run(self, *words, expect=0):
        """Runs `tandem notebook run` without a GPU; its stdout and stderr."""
        return self.tandem("notebook", "run", "--unshared", *words, expect=expect)

    def submit(self, *words, expect=0):
        """Submits a notebook without a GPU; the number of the job."""
        return int(self.tandem("notebook", "submit", "--unshared", *words, expect=expect)[0])

    def jobs(self):
        """The records of all jobs, by number."""
        listed = json.loads(self.tandem("jobs", "--all", "--json")[0])["jobs"]
        return {record["job"]: record for record in listed}

    def until(self, name, process=None):
        """Waits until a file of the folder exists."""
        wait_until(self.path(name).exists, process, f"{name} exists")

    def close(self):
        """Ends what is left."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        left = [j for j, record in self.jobs().items() if record["state"] in ("queued", "running")]
        for number in reversed(left):
            self.start("cancel", "--grace", "1", number).communicate(timeout=PATIENCE_S)  # it may have ended by now
        assert all(record["state"] not in ("queued", "running") for record in self.jobs().values())


@pytest.fixture
def desk(tmp_path):
    """A folder for notebooks; its jobs end with the test."""
    desk = Desk(tmp_path)
    yield desk
    desk.close()


@pytest.fixture
def gpu_desk(desk, tmp_path):
    """A desk beside a software GPU of 256 MiB."""
    (tmp_path / "card").mkdir()
    card = e2e.Card(tmp_path / "card")
    desk.env.update({k: v for k, v in card.env.items() if k.startswith("TANDEM_")})
    desk.env["TANDEM_COMMAND"] = str(e2e.TANDEM)
    desk.card = card
    card.start_daemon()
    yield desk
    desk.close()
    card.close()


__all__ = ["BLOCK", "DEAF", "PYTHON", "SOURCE", "desk", "ended", "gpu_desk", "tagged"]
__all__ += ["new_markdown_cell", "wait_until"]
