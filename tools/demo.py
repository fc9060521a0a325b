#!/usr/bin/env python3
"""Three programs that know nothing of Tandem share a GPU that is too small for them.

Two of them are ffmpeg, holding a video's frames on the card; one trains a network. Together they
want more than twice the memory of the card, a software GPU of 256 MiB. Each runs alone first, then
all at once without Tandem, then with it; at the end every output is compared with the one that the
program gave alone. Every figure is measured by this run.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

VRAM, CONTEXT = "256M", "8M"
PATIENCE_S = 300  # for any one step: a bound, not an expectation
FRAME_S = 0.1
MIB = 1 << 20


def ffmpeg(source):
    """Puts a small clip over a large one, on the card, and plays the result backwards: `reverse`
    keeps all of its 45 frames there, 3.98 MiB each."""
    return [
        "ffmpeg", "-v", "error", "-nostdin",
        "-init_hw_device", "cuda=cu:0", "-filter_hw_device", "cu",
        "-f", "lavfi", "-i", f"{source}=s=1920x1360:r=25:d=1.8",
        "-f", "lavfi", "-i", "testsrc=s=320x240:r=25:d=1.8",
        "-filter_complex",
        "[0]format=yuv420p,hwupload_cuda[a];[1]format=yuv420p,hwupload_cuda[b];"
        "[a][b]overlay_cuda=x=100:y=50,reverse,hwdownload,format=yuv420p",
        "-f", "md5", "-",
    ]  # fmt: skip


def programs(build):
    return {
        "film-1": ffmpeg("testsrc2"),
        "film-2": ffmpeg("smptehdbars"),
        "train": [str(build / "bin" / "train"), "--memory", "160M", "--steps", "20"],
    }


class DemoError(Exception):
    """What a person reading it should know; the demo ends with it."""


# ---- Programs on the software GPU


class Job:
    """One program at work; its output goes to files, so that it never waits for us."""

    def __init__(self, name, argv, env, folder):
        self.name = name
        self.out, self.err = folder / f"{name}.out", folder / f"{name}.err"
        self.begin, self.seconds = time.monotonic(), None
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen(
                argv, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )

    def ended(self):
        if self.seconds is None and self.process.poll() is not None:
            self.seconds = time.monotonic() - self.begin
        return self.seconds is not None

    def ok(self):
        return self.ended() and self.process.returncode == 0

    def output(self):
        return self.out.read_text(errors="replace")

    def errors(self):
        return self.err.read_text(errors="replace")

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Machine:
    """A software GPU of our own and the programs on it; all of it is gone after the `with`."""

    def __init__(self, build):
        self.build = build
        self.tandem = str(build / "bin" / "tandem")
        self.jobs = []

    def __enter__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="tandem-demo-"))
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("TANDEM_")}
        self.env.update(
            TANDEM_GPU="soft",
            TANDEM_SOFT_VRAM=VRAM,
            TANDEM_SOFT_CONTEXT=CONTEXT,
            TANDEM_SOFT_DIR=str(self.folder / "soft"),
            TANDEM_RUNTIME_DIR=str(self.folder / "run"),
        )
        for name in ("soft", "run"):
            (self.folder / name).mkdir(mode=0o700)
        return self

    def __exit__(self, *_):
        for job in self.jobs:
            job.stop()
        with contextlib.suppress(DemoError, OSError, subprocess.SubprocessError):
            self.stop_daemon()
        shutil.rmtree(self.folder, ignore_errors=True)

    def stop_daemon(self):
        pid = self.ask("status")["pid"]
        if pid is None:
            return
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 10
        while self.ask("status")["pid"] is not None and time.monotonic() < deadline:
            time.sleep(0.05)

    def start(self, name, argv, env):
        folder = self.folder / str(len(self.jobs))
        folder.mkdir()
        self.jobs.append(Job(name, argv, env, folder))
        return self.jobs[-1]

    def bare(self, name, argv):
        soft = str(self.build / "lib" / "tandem" / "soft")
        path = f"{soft}:{self.env['LD_LIBRARY_PATH']}" if self.env.get("LD_LIBRARY_PATH") else soft
        return self.start(name, argv, {**self.env, "LD_LIBRARY_PATH": path})

    def shared(self, name, argv):
        return self.start(name, [self.tandem, "run", "--name", name, "--", *argv], self.env)

    def ask(self, what):
        answer = subprocess.run(
            [self.tandem, what, "--json"], env=self.env, capture_output=True, timeout=PATIENCE_S
        )
        if answer.returncode != 0:
            raise DemoError(answer.stderr.decode(errors="replace").strip())
        return json.loads(answer.stdout)


def wait(jobs, until, each_time=lambda: None, pause_s=0.01):
    """Until the condition holds; every job is looked at again and again, so its time is known."""
    deadline = time.monotonic() + PATIENCE_S
    while not until():
        if time.monotonic() > deadline:
            raise DemoError(f"not done after {PATIENCE_S} s")
        each_time()
        time.sleep(pause_s)
        for job in jobs:
            job.ended()


# ---- What people see


class Screen:
    """Lines of text and, on a terminal, a picture that is drawn over and over in its place."""

    def __init__(self, quiet):
        self.stream = sys.stderr if quiet else sys.stdout
        self.live = (
            not quiet
            and self.stream.isatty()
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM", "dumb") != "dumb"
        )
        # Python itself turns the C locale into C.UTF-8, which says nothing about the terminal.
        ctype = os.environ.get("LC_CTYPE", "")
        name = os.environ.get("LC_ALL") or ("" if ctype == "C.UTF-8" else ctype)
        name = name or os.environ.get("LANG", "")
        self.unicode = name.lower().replace("-", "").endswith("utf8")
        self.drawn = 0

    def say(self, text=""):
        self.drawn = 0
        if not self.unicode:
            text = text.encode("ascii", "replace").decode()
        print(text, file=self.stream, flush=True)

    def title(self, text):
        self.say(f"\n\x1b[1m{text}\x1b[0m" if self.live else f"\n{text}")

    def draw(self, lines):
        over = f"\x1b[{self.drawn}F" if self.drawn else ""
        body = "".join(f"{line}\x1b[0m\x1b[K\n" for line in lines)
        self.stream.write(f"\x1b[?25l{over}{body}\x1b[?25h")
        self.stream.flush()
        self.drawn = len(lines)

    def paint(self, text, colour):
        return f"\x1b[{colour}m{text}\x1b[0m" if self.live else text


def mib(count):
    return f"{count / MIB:.0f} MiB"


def gib(count):
    return f"{count / (1 << 30):.2f} GiB"


COLOURS = {"film-1": 36, "film-2": 33, "train": 35}
STATES = {
    "running": "holds the card",
    "restoring": "comes back",
    "waiting": "waits",
    "releasing": "gives way",
    "idle": "idle",
}


class Watcher:
    """Looks at the sessions again and again: keeps the peaks and shows where the bytes are."""

    def __init__(self, machine, screen, jobs, card_bytes):
        self.machine, self.screen, self.jobs = machine, screen, jobs
        self.card_bytes = card_bytes
        self.begin = time.monotonic()
        self.peaks = {}  # session id -> (allocated bytes, contexts)
        self.last_told = None

    def look(self):
        sessions = self.machine.ask("ps")["sessions"]
        for session in sessions:
            allocated, contexts = self.peaks.get(session["id"], (0, 0))
            self.peaks[session["id"]] = (
                max(allocated, session["allocated_bytes"]),
                max(contexts, session["contexts"]),
            )
        by_name = {session["name"]: session for session in sessions}
        if self.screen.live:
            self.screen.draw(self.picture(by_name))
        else:
            self.tell(by_name)

    def tell(self, by_name):
        """A line whenever the card changes hands."""
        holders = [n for n, s in by_name.items() if s["state"] == "running"]
        if not holders or holders == self.last_told:
            return
        self.last_told = holders
        places = ", ".join(
            f"{name} {s['resident_bytes'] // MIB} + {s['swapped_bytes'] // MIB}"
            for name, s in by_name.items()
        )
        self.screen.say(
            f"  {time.monotonic() - self.begin:5.1f} s  {' and '.join(holders)} on the card;"
            f" MiB there + in host memory: {places}"
        )

    def picture(self, by_name):
        full, empty, rest = ("█", "░", "·") if self.screen.unicode else ("#", ":", ".")
        width = max(16, min(48, shutil.get_terminal_size().columns - 42))

        def cells(count):
            return round(count * width / self.card_bytes)

        stacked, used = "", 0
        for job in self.jobs:
            if session := by_name.get(job.name):
                length = min(cells(session["resident_bytes"]), width - used)
                stacked += self.screen.paint(full * length, COLOURS[job.name])
                used += length
        seconds = time.monotonic() - self.begin
        lines = [f"  {'the card':10}{stacked}{rest * (width - used)}  {mib(self.card_bytes)}"]
        for job in self.jobs:
            session = by_name.get(job.name)
            if session is None:
                state = f"done after {job.seconds:.1f} s" if job.ended() else "starts"
                lines.append(f"  {job.name:10}{state}")
                continue
            on_card, on_host = session["resident_bytes"], session["swapped_bytes"]
            bar = self.screen.paint(full * cells(on_card), COLOURS[job.name])
            bar += empty * cells(on_host) + " " * (width - cells(on_card) - cells(on_host))
            state = STATES.get(session["state"], session["state"])
            lines.append(f"  {job.name:10}{bar}  {on_card // MIB:4} {on_host // MIB:4}  {state}")
        lines.append(
            f"  {seconds:5.1f} s    {full} on the card, {empty} in host memory (MiB at the right)"
        )
        return lines


# ---- The steps


def run_alone(machine, screen, work):
    screen.title("1. Each program alone")
    alone = {}
    for name, argv in work.items():
        job = machine.bare(name, argv)
        wait([job], job.ended, pause_s=0.002)
        if not job.ok():
            raise DemoError(f"{name} fails even alone:\n{job.errors()}")
        screen.say(f"  {name:10}{job.seconds:5.1f} s   {job.output().splitlines()[-1]}")
        alone[name] = job
    return alone


def run_without_tandem(machine, screen, work):
    """Whether a program ran out of memory."""
    screen.title(f"2. All at once without Tandem, on a card of {VRAM.removesuffix('M')} MiB")
    jobs = [machine.bare(name, argv) for name, argv in work.items()]

    def out_of_memory():
        return [j for j in jobs if j.ended() and not j.ok() and "OUT_OF_MEMORY" in j.errors()]

    wait(jobs, lambda: out_of_memory() or all(job.ended() for job in jobs))
    failed = out_of_memory()
    for job in failed:
        line = next(line for line in job.errors().splitlines() if "OUT_OF_MEMORY" in line)
        # Without the address of ffmpeg's object that the line begins with.
        words = re.sub(r"^\[[^]]*\] ", "", line.strip())
        screen.say(f"  {screen.paint(f'{job.name:10}', 31)}{words}")
    if not failed:
        screen.say("  all of them went through: nothing to see here")
    for job in jobs:
        job.stop()
    return bool(failed)


def run_with_tandem(machine, screen, work):
    screen.title("3. All at once with `tandem run`")
    begin = time.monotonic()
    jobs = [machine.shared(name, argv) for name, argv in work.items()]
    # The first of them starts the daemon; until it answers there is nothing to show.
    wait(jobs, lambda: machine.ask("status")["gpus"] or any(job.ended() for job in jobs))
    gpus = machine.ask("status")["gpus"]
    if not gpus:
        raise DemoError(f"`tandem run` failed:\n{''.join(job.errors() for job in jobs)}")
    watcher = Watcher(machine, screen, jobs, gpus[0]["card_bytes"])
    wait(jobs, lambda: all(job.ended() for job in jobs), watcher.look, FRAME_S)
    watcher.look()
    return jobs, watcher, time.monotonic() - begin


def compare(screen, alone, jobs):
    """Whether every program gave with the others what it gave alone."""
    screen.title("4. The same output as alone?")
    same = True
    for job in jobs:
        equal = job.ok() and job.output() != "" and job.output() == alone[job.name].output()
        same = same and equal
        verdict = "the same, byte for byte" if equal else f"DIFFERENT, status {job.process.returncode}"
        screen.say(f"  {job.name:10}{verdict}")
        if not equal:
            screen.say(job.errors().rstrip())
    train = next(job for job in jobs if job.name == "train")
    screen.say("\n  What the network learned meanwhile:")
    for line in train.output().splitlines():
        screen.say(f"    {line}")
    return same


def demonstrate(machine, screen):
    work = programs(machine.build)
    alone = run_alone(machine, screen, work)
    oom = run_without_tandem(machine, screen, work)
    jobs, watcher, shared_seconds = run_with_tandem(machine, screen, work)
    verified = compare(screen, alone, jobs)
    gpu = machine.ask("status")["gpus"][0]
    wanted = sum(
        allocated + contexts * gpu["context_bytes"] for allocated, contexts in watcher.peaks.values()
    )
    result = {
        "gpu": gpu["name"],
        "vram_bytes": gpu["card_bytes"],
        "wanted_bytes": wanted,
        "sessions": len(watcher.peaks),
        "oom_without_tandem": oom,
        "verified": verified,
        "handovers": gpu["handovers"],
        "bytes_moved": gpu["out_bytes"] + gpu["in_bytes"],
        "serial_seconds": round(sum(job.seconds for job in alone.values()), 3),
        "shared_seconds": round(shared_seconds, 3),
    }
    screen.title("5. What sharing cost")
    screen.say(f"  wanted      {mib(wanted)}, {wanted / gpu['card_bytes']:.1f} times the card")
    screen.say(f"  hand-overs  {result['handovers']}, moving {gib(result['bytes_moved'])}")
    screen.say(
        f"  time        {result['shared_seconds']:.1f} s together,"
        f" {result['serial_seconds']:.1f} s one after the other"
    )
    return result


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", type=Path, required=True, help="the build directory")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    return parser.parse_args()


def main():
    args = arguments()
    # As Ctrl-C does: through every `with` and `finally`.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    screen = Screen(quiet=args.json)
    try:
        if shutil.which("ffmpeg") is None:
            raise DemoError("ffmpeg is missing; `./dev deps` installs it")
        with Machine(args.build.resolve()) as machine:
            result = demonstrate(machine, screen)
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if args.json:
        print(json.dumps(result))
    good = result["verified"] and result["oom_without_tandem"] and result["handovers"] > 0
    if not good:
        print("demo: it did not show what it should", file=sys.stderr)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
