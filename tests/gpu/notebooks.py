#!/usr/bin/env python3
"""Two notebooks for check.py whose memory does not fit on the GPU together; prints what they did as JSON.

    python3 notebooks.py --tandem TANDEM --gib GIB [--rounds N] [--driver]

Real kernels (jupyter_client, ipykernel) as `tandem jupyter install` installs them. Each holds GIB of device
memory in pieces. A cell adds one to all of it, in turns and then in both notebooks at once. An endless cell
is interrupted while the other notebook waits. At the end every piece has to be right.
--driver: without PyTorch, for the software GPU.
"""

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

from jupyter_client import KernelManager

SOURCE = Path(__file__).resolve().parents[2]
PATIENCE_S = 60
TORCH = """%%gpu
import torch
pieces = [torch.full((2**26,), n, dtype=torch.int32, device="cuda") for n in range(int({gib} * 4))]
added = 0
def add():
    global added
    for piece in pieces:
        piece.add_(1)
    torch.cuda.synchronize()
    added += 1
other = torch.ones(4096, 4096, device="cuda")
def work():  # that an interrupt may end anywhere
    other @ other
    torch.cuda.synchronize()
def wrong():
    return sum(int((piece != n + added).sum().item()) for n, piece in enumerate(pieces))
torch.cuda.synchronize()"""
DRIVER = """%%gpu
exec(open({cells!r}).read())
memory = Memory(int({gib} * 2**30))
add = lambda: memory.work(0)
work = lambda: memory.work(20_000_000)
wrong = memory.wrong_words"""


class Notebook:
    def __init__(self, tandem, name):
        kernel = [sys.executable, "-m", "tandem.jupyter.kernel", "-f", "{connection_file}"]
        self.manager = KernelManager()
        self.manager.kernel_spec.argv = [tandem, "run", "--quiet", "--name", name, "--", *kernel]
        path = os.pathsep.join(filter(None, [str(SOURCE / "python"), os.environ.get("PYTHONPATH", "")]))
        self.manager.start_kernel(env={**os.environ, "PYTHONPATH": path, "TANDEM_COMMAND": tandem})
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=PATIENCE_S)

    def begin(self, cell):
        self.message = self.client.execute(cell, stop_on_error=False, user_expressions={"found": "found"})
        self.begun = time.monotonic()

    def end(self):
        """The seconds of the cell, the name of its error or None, and the value of `found`."""
        while True:
            reply = self.client.get_shell_msg(timeout=PATIENCE_S)
            if reply["parent_header"].get("msg_id") == self.message:
                break
        seconds, content = time.monotonic() - self.begun, reply["content"]
        found = content.get("user_expressions", {}).get("found", {})
        return seconds, content.get("ename"), found.get("data", {}).get("text/plain")

    def run(self, cell):
        self.begin(cell)
        return self.end()

    def wait_for_output(self):
        """Returns once the running cell has printed something."""
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            message = self.client.get_iopub_msg(timeout=PATIENCE_S)
            if message["msg_type"] == "stream" and message["parent_header"].get("msg_id") == self.message:
                return

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def times(seconds):
    return {"median": round(statistics.median(seconds), 3), "max": round(max(seconds), 3), "cells": len(seconds)}


def check(books, args):
    prepare = (DRIVER if args.driver else TORCH).format(gib=args.gib, cells=str(SOURCE / "bench" / "_cells.py"))
    begin = time.monotonic()
    errors = [book.run(prepare)[1] for book in books]
    report = {"prepare_s": round(time.monotonic() - begin, 3), "gib": args.gib}
    anna, ben = books
    cell = "%%gpu\nadd()"

    def run_both():
        for book in books:
            book.begin(cell)
        return [book.end() for book in books]

    alone = [anna.run(cell) for _ in range(args.rounds)]
    turns = [book.run(cell) for _ in range(args.rounds) for book in books]
    at_once = [ran for _ in range(args.rounds) for ran in run_both()]
    anna.begin("%%gpu\nprint('begun', flush=True)\nwhile True:\n    work()")
    anna.wait_for_output()
    ben.begin(cell)
    beside = ben.end()
    anna.manager.interrupt_kernel()
    interrupted = anna.end()
    last = [book.run(cell) for book in books]
    errors += [error for _, error, _ in (*alone, *turns, *at_once, beside, *last)]
    report["alone_s"] = times([ran[0] for ran in alone])
    report["in_turns_s"] = times([ran[0] for ran in turns])
    report["at_once_s"] = times([ran[0] for ran in at_once])
    report["beside_an_endless_cell_s"] = round(beside[0], 3)
    report["interrupted"] = interrupted[1]
    report["errors"] = [error for error in errors if error is not None]
    report["wrong"] = [book.run("%%gpu\nfound = wrong()")[2] for book in books]
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tandem", required=True, help="the program tandem")
    parser.add_argument("--gib", type=float, required=True, help="device memory of each notebook")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--driver", action="store_true", help="without PyTorch")
    args = parser.parse_args()
    books = []
    try:
        for name in ("anna", "ben"):
            books.append(Notebook(args.tandem, name))
        print(json.dumps(check(books, args)), flush=True)
    finally:
        for book in books:
            book.close()


if __name__ == "__main__":
    main()
