"""Notebook kernels for benchmarks: real ipykernels, under `tandem run` or without, and what their cells do."""

import ast
import os
import time
from pathlib import Path

from _card import PATIENCE_S, TANDEM, Failed

PYTHON = "/usr/bin/python3"
PACKAGE = str(Path(__file__).resolve().parents[1] / "python")
CELLS = Path(__file__).with_name("_cells.py")


class Kernel:
    """An ipykernel that runs cells. `name`: of its run, or None for a kernel without Tandem."""

    def __init__(self, card, name=None):
        from jupyter_client import KernelManager

        argv = [PYTHON, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        if name is not None:
            argv = [TANDEM, "run", "--quiet", "--name", name, "--", *argv]
        self.manager = KernelManager()
        self.manager.kernel_spec.argv = argv
        paths = [PACKAGE, os.environ.get("PYTHONPATH", "")]
        env = {**card.env, "PYTHONPATH": ":".join(filter(None, paths))}
        env["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"  # its warning is about debuggers
        self.manager.start_kernel(env=env)
        card.cleanup.callback(self.close)
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=PATIENCE_S)

    def run(self, cell, value=None):
        """Runs a cell; returns the value of the expression `value` after it."""
        expressions = {} if value is None else {"value": value}
        message = self.client.execute(cell, store_history=False, user_expressions=expressions)
        while True:
            reply = self.client.get_shell_msg(timeout=PATIENCE_S)
            if reply["parent_header"].get("msg_id") == message:
                break
        content = reply["content"]
        if content["status"] != "ok":
            raise Failed("\n".join(content.get("traceback", [content["status"]])))
        if value is None:
            return None
        answer = content["user_expressions"]["value"]
        if answer["status"] != "ok":
            raise Failed("\n".join(answer["traceback"]))
        return ast.literal_eval(answer["data"]["text/plain"])

    def seconds(self, cell):
        """What a cell takes, from its request to its reply."""
        begin = time.perf_counter()
        self.run(cell)
        return time.perf_counter() - begin

    def prepare(self, held):
        """Loads the magics and the device program, which holds `held` bytes on the card."""
        self.run("%load_ext tandem")
        self.run(f"%%gpu\nexec(open({str(CELLS)!r}).read())\nmemory = Memory({held})")

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
