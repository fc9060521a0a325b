"""What the checks of a real GPU share: programs with a time limit, a daemon, and how results are told."""

import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path


class Run:
    """One program: its end, its output, and how long it took."""

    def __init__(self, argv, env, limit_s, log=None):
        begin = time.monotonic()
        process = subprocess.Popen(
            argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True, errors="replace", text=True,
        )  # fmt: skip
        self.timed_out = False
        try:
            self.output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            self.timed_out = True
            os.killpg(process.pid, signal.SIGKILL)
            self.output, _ = process.communicate()
        self.status = process.returncode
        self.seconds = round(time.monotonic() - begin, 3)
        if log is not None:
            with open(log, "a") as file:
                file.write(f"$ {' '.join(map(str, argv))}\n{self.output}\n-> {self.end}, {self.seconds} s\n")

    @property
    def end(self):
        return "timeout" if self.timed_out else self.status


class Machine:
    """A build of Tandem on this machine, with a daemon's directories of its own."""

    def __init__(self, build, out, limit_s, soft):
        self.build, self.out = Path(build).resolve(), Path(out).resolve()
        self.logs = self.out / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.deadline = time.monotonic() + limit_s
        self.tandem = str(self.build / "bin" / "tandem")
        self.tandemd = str(self.build / "bin" / "tandemd")
        self.scratch = tempfile.TemporaryDirectory(prefix="tandem-gpu-")
        kept = {k: v for k, v in os.environ.items() if not k.startswith("TANDEM_") or k.startswith("TANDEM_SOFT")}
        state = Path(self.scratch.name)
        (state / "run").mkdir(mode=0o700)
        self.env = {**kept, "TANDEM_GPU": "cuda", "TANDEM_RUNTIME_DIR": str(state / "run"),
                    "TANDEM_STATE_DIR": str(state), "TANDEM_EVENTS": str(self.logs / "events.jsonl"), "PYTHONUNBUFFERED": "1",
                    "TRITON_CACHE_DIR": str(state / "triton")}  # fmt: skip
        if soft:
            self.env |= {"TANDEM_GPU": "soft", "TANDEM_SOFT_DIR": str(state / "run"),
                         "LD_LIBRARY_PATH": str(self.build / "lib" / "tandem" / "soft")}  # fmt: skip
        self.soft, self.failures = soft, 0

    def say(self, step, **fields):
        line = {"step": step, **fields}
        with open(self.out / "results.jsonl", "a") as file:
            file.write(json.dumps(line) + "\n")
        print(" ".join(f"{k}={v}" for k, v in line.items()), flush=True)
        if fields.get("ok") is False:
            self.failures += 1

    def left(self, at_most):
        return max(1, min(at_most, self.deadline - time.monotonic()))

    def wait(self, condition, limit_s):
        """Waits until condition() holds. Returns whether it did in time."""
        until = time.monotonic() + self.left(limit_s)
        while not (held := bool(condition())) and time.monotonic() < until:
            time.sleep(0.05)
        return held

    def go(self, name, argv, limit_s, **variables):
        return Run(list(map(str, argv)), {**self.env, **variables}, self.left(limit_s), self.logs / f"{name}.log")

    def shared(self, argv, *options):
        return [self.tandem, "run", *options, "--", *argv]

    def daemon(self):
        log = open(self.logs / "tandemd.log", "a")
        process = subprocess.Popen([self.tandemd], env=self.env, stdin=subprocess.DEVNULL, stdout=log,
                                   stderr=log, start_new_session=True)  # fmt: skip
        self.wait(lambda: process.poll() is not None or '"pid":null' not in
                  self.go("status", [self.tandem, "status", "--json"], 10).output, 60)  # fmt: skip
        return process

    def end_daemon(self, process):
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def moves(self):
        """The hand-overs so far that moved bytes."""
        told = self.go("handovers", [self.tandem, "handovers", "--json"], 20)
        try:
            made = json.loads(told.output)["handovers"]
        except (ValueError, KeyError):
            return []
        return [h for h in made if h["in_bytes"] + h["out_bytes"] > 0]

    def gib(self):
        return self.status()["budget_bytes"] / 2**30

    def status(self):
        """What `tandem status` says of the first GPU."""
        return json.loads(self.go("status", [self.tandem, "status", "--json"], 20).output)["gpus"][0]

    def sessions(self):
        return json.loads(self.go("ps", [self.tandem, "ps", "--json"], 20).output)["sessions"]
