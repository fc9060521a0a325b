"""A remote cell in a notebook's kernel shows what the same cell shows when it runs locally."""

import os
import queue
import re
import time

import pytest

from remote_fixtures import PYTHON

jupyter_client = pytest.importorskip("jupyter_client")

REMOTE = """
from tandem.remote import run_cell
run_cell(get_ipython(), {source!r}, "local-worker", {{"plain": True}}).raise_error()
"""


class Notebook:
    """A kernel as a notebook has it."""

    def __init__(self):
        env = {**os.environ, "PYTHONPATH": str(PYTHON), "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
        self.manager, self.client = jupyter_client.manager.start_new_kernel(
            kernel_name="python3", env=env
        )

    def start(self, source):
        return self.client.execute(source, allow_stdin=True, stop_on_error=False)

    def messages(self, request, until=None, answer=None):
        """Returns the iopub messages of a request, up to idle or one that `until` accepts."""
        deadline, found = time.monotonic() + 40, []
        while time.monotonic() < deadline:
            if answer is not None:
                try:
                    self.client.get_stdin_msg(timeout=0.05)
                    self.client.input(answer)
                    answer = None
                except queue.Empty:
                    pass
            try:
                message = self.client.get_iopub_msg(timeout=0.2)
            except queue.Empty:
                continue
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["header"]["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                return found
            found.append((kind, content))
            if until is not None and until(kind, content):
                return found
        raise TimeoutError(f"no end of the cell: {found}")

    def run(self, source, **options):
        return self.messages(self.start(source), **options)

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def notebook():
    notebook = Notebook()
    yield notebook
    notebook.close()


def outputs(messages):
    """Returns what a person sees: adjacent text is one piece, and counts are left out."""
    shown = []
    for kind, content in messages:
        if kind in ("status", "execute_input"):
            continue
        if kind == "stream" and shown and shown[-1][:2] == ["stream", content["name"]]:
            shown[-1][2] += content["text"]
        elif kind == "stream":
            shown.append(["stream", content["name"], content["text"]])
        elif kind == "error":
            shown.append(["error", content["ename"], content["evalue"]])
        else:
            data = {k: v for k, v in content.get("data", {}).items() if k != "image/png"}
            pictures = sorted(set(content.get("data", {})) - set(data))
            named = bool(content.get("transient"))
            shown.append([kind, data, pictures, content.get("wait"), named])
    return shown


CELLS = {
    "text on both streams": "import sys\nprint('out', flush=True)\nprint('err', file=sys.stderr)",
    "bytes are not text": "print(b'raw', 'ünïcode')",
    "a result": "[1, 2, {'a': 3}]",
    "html": (
        "from IPython.display import HTML, display\ndisplay(HTML('<b>x</b>'))\nHTML('<i>y</i>')"
    ),
    "an updated display": (
        "from IPython.display import display\n"
        "h = display('one', display_id='same')\nh.update('two')"
    ),
    "a progress bar": (
        "from IPython.display import clear_output, ProgressBar, display\n"
        "for i in range(3):\n clear_output(wait=True)\n print('step', i, flush=True)\n"
        "display(ProgressBar(3))"
    ),
    "an error": "def f(x): return 1 / x\nprint('before', flush=True)\nf(0)",
    "a syntax error": "x = = 1",
    "a system command": "!echo from the shell",
}


@pytest.mark.parametrize("name", CELLS)
def test_outputs_are_those_of_a_local_cell(notebook, name):
    local = outputs(notebook.run(CELLS[name]))
    remote = outputs(notebook.run(REMOTE.format(source=CELLS[name])))
    assert local and remote == local


def test_a_picture_arrives(notebook):
    png = (
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGD4DwABBAEAfbLI3wAAAABJRU5E"
        "rkJggg=="
    )
    source = f"import base64\nfrom IPython.display import Image\nImage(base64.b64decode({png!r}))"
    (kind, content) = notebook.run(REMOTE.format(source=source))[-1]
    assert kind == "execute_result"
    assert content["data"]["image/png"].replace("\n", "") == png


def test_the_traceback_shows_the_cells_lines_and_nothing_of_tandem(notebook):
    source = "def inner():\n    raise ValueError('deep')\n\ninner()"
    (kind, content) = notebook.run(REMOTE.format(source=source))[-1]
    text = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(content["traceback"]))
    assert kind == "error" and content["ename"] == "ValueError"
    assert "deep" in text and "inner()" in text and "tandem" not in text


def test_input_reaches_the_cell(notebook):
    source = REMOTE.format(source="name = input('who? ')\nprint('hello', name)")
    assert outputs(notebook.run(source, answer="Ada")) == [["stream", "stdout", "hello Ada\n"]]


def test_an_interrupt_stops_the_cell_and_keeps_the_worker(notebook):
    notebook.run("l = [1]")
    notebook.run(REMOTE.format(source="import os; pid = os.getpid()"))
    source = "l.append(2)\nprint('started', flush=True)\nwhile True: pass"
    request = notebook.start(REMOTE.format(source=source))
    notebook.messages(request, until=lambda kind, content: "started" in content.get("text", ""))
    notebook.manager.interrupt_kernel()
    (kind, content) = notebook.messages(request)[-1]
    assert kind == "error" and content["ename"] == "KeyboardInterrupt"
    assert "True" in "\n".join(content["traceback"])
    check = "assert l == [1] and pid == os.getpid(); l.append(5)"
    assert outputs(notebook.run(REMOTE.format(source="import os\n" + check))) == []
    assert outputs(notebook.run("print(l)")) == [["stream", "stdout", "[1, 5]\n"]]


def test_a_second_interrupt_ends_a_worker_that_does_not_react(notebook):
    notebook.run("l = [1]")
    source = (
        "l.append(2); word = 'started'\nwhile True:\n    try:\n        print(word, flush=True)\n"
        "        while True: pass\n    except KeyboardInterrupt: word = 'ignored'"
    )
    request = notebook.start(REMOTE.format(source=source))
    for word in ("started", "ignored"):
        seen = notebook.messages(request, until=lambda _, content: word in content.get("text", ""))
        assert word in seen[-1][1].get("text", ""), seen
        notebook.manager.interrupt_kernel()
    (kind, content) = notebook.messages(request)[-1]
    assert kind == "error" and content["ename"] == "KeyboardInterrupt"
    shown = outputs(notebook.run(REMOTE.format(source="l.append(5)")))
    assert [piece[1] for piece in shown] == ["stderr"] and "a new one starts" in shown[0][2]
    assert outputs(notebook.run("print(l)")) == [["stream", "stdout", "[1, 5]\n"]]
