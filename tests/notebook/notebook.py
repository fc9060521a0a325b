"""A notebook without a page: a real ipykernel, and the messages that a front end would show."""

import time
from dataclasses import dataclass, field
from queue import Empty

from harness import PATIENCE_S, SOURCE, TANDEM
from jupyter_client import KernelManager

PYTHON = "/usr/bin/python3"
PACKAGE = SOURCE / "python"
CELLS = SOURCE / "bench" / "_cells.py"
MAGICS = "%load_ext tandem"


@dataclass
class Ran:
    """What came of a cell. `shown`: (message type, text) of each output, updates included."""

    status: str = ""
    name: str = ""
    text: str = ""
    shown: list = field(default_factory=list)

    def texts(self, kind):
        return [text for shown, text in self.shown if shown == kind]

    @property
    def value(self):
        """The cell's last value, as text."""
        return next(iter(self.texts("execute_result")), None)

    @property
    def lines(self):
        """What the line about the wait said, one after the other."""
        return self.texts("display_data") + self.texts("update_display_data")


class Notebook:
    """`shared`: whether the kernel is the one that `tandem jupyter install` installs."""

    def __init__(self, card, name, shared=True, extension=True, options=()):
        self.card, self.name = card, name
        argv = [PYTHON, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        if shared:
            argv[2] = "tandem.jupyter.kernel"
            argv = [str(TANDEM), "run", "--quiet", "--name", name, *options, "--", *argv]
        self.manager = KernelManager()
        self.manager.kernel_spec.argv = argv
        env = {**card.env, "PYTHONPATH": str(PACKAGE), "TANDEM_COMMAND": str(TANDEM)}
        env["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"  # its warning is about debuggers
        self.manager.start_kernel(env=env)
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=PATIENCE_S)
        self.running = None
        if extension:
            assert self.run(MAGICS).status == "ok"

    def begin(self, cell):
        """Starts a cell; `end` has what comes of it."""
        self.running = self.client.execute(cell, stop_on_error=False)
        self.ran = Ran()
        self.idle = False

    def read(self, patience=0.05):
        """Takes one message of the running cell, if there is one. Whether there was."""
        try:
            message = self.client.get_iopub_msg(timeout=patience)
        except Empty:
            return False
        if message["parent_header"].get("msg_id") != self.running:
            return True
        kind, content = message["msg_type"], message["content"]
        if kind == "status":
            self.idle = content["execution_state"] == "idle"
        elif kind == "error":
            self.ran.shown.append((kind, "\n".join(content["traceback"])))
        elif kind == "stream":
            self.ran.shown.append((content["name"], content["text"]))
        elif kind in ("execute_result", "display_data", "update_display_data"):
            self.ran.shown.append((kind, content["data"]["text/plain"]))
        return True

    def until(self, condition, what):
        """Reads messages until `condition()` holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"waited {PATIENCE_S} s in vain: {what}"
            self.read()

    def end(self):
        """Waits for the running cell; returns its `Ran`."""
        self.until(lambda: self.idle, "the cell ends")
        while True:
            reply = self.client.get_shell_msg(timeout=PATIENCE_S)
            if reply["parent_header"].get("msg_id") == self.running:
                break
        content = reply["content"]
        self.ran.status = content["status"]
        self.ran.name, self.ran.text = content.get("ename", ""), content.get("evalue", "")
        return self.ran

    def run(self, cell):
        self.begin(cell)
        return self.end()

    def value(self, expression):
        """The value of an expression, as Python text."""
        ran = self.run(expression)
        assert ran.status == "ok", ran
        return ran.value

    def until_waiting(self):
        """The line in which the running cell shows what it waits for, once it does."""
        self.until(lambda: any("in line" in line for line in self.ran.lines), "the cell waits")
        return next(line for line in self.ran.lines if "in line" in line)

    def interrupt(self):
        self.manager.interrupt_kernel()

    def take_memory(self, held):
        """Takes `held` bytes of device memory in a cell; its name is `memory`."""
        ran = self.run(f"%%gpu\nexec(open({str(CELLS)!r}).read())\nmemory = Memory({held})")
        assert ran.status == "ok", ran

    @property
    def session(self):
        """Its session as the daemon lists it; None where it has none."""
        sessions = self.card.sessions()
        return next((session for session in sessions if session["name"] == self.name), None)

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
