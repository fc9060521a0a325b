"""What the benchmarks share: a card with a daemon of its own, workers on it, and how results are told.

A benchmark is `run(NAME, __doc__, measure, ...)`: `measure(args)` yields result rows, dictionaries
whose fields docs/performance.md explains. Rows go to standard output, progress to standard error.
"""

import argparse
import contextlib
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BUILD = Path(os.environ.get("TANDEM_BUILD", "build/release")).resolve()
TANDEM = str(BUILD / "bin" / "tandem")
TANDEMD = str(BUILD / "bin" / "tandemd")
WORKER = str(BUILD / "bin" / "bench_worker")
TRAIN = str(BUILD / "bin" / "train")
SHIM = str(BUILD / "lib" / "libtandem.so")
SOFT = str(BUILD / "lib" / "tandem" / "soft")
NOOP = str(BUILD / "lib" / "bench" / "noop")
MIB = 1 << 20
PATIENCE_S = 600  # with anything that answers
END_PATIENCE_S = 60
ENDS = (signal.SIGINT, signal.SIGTERM)
# Of the environment, what also holds in a benchmark: it makes one host as slow as another.
KEPT = "TANDEM_SOFT_PAGE_FAULT"

# Of the software card, small so that copying is little work for the host. What can be handed out is
# less: there is room for four contexts, and a chunk of 2 MiB stays free.
VRAM, CONTEXT, CHUNK = 56 * MIB, 2 * MIB, 2 * MIB
BUDGET = VRAM - 4 * CONTEXT - CHUNK
COPY = 4 * MIB
FULL_SCALE_S = 2.56  # one way, for all of a card of 141 GB on a bus of 55 GB/s


class Failed(Exception):
    """A benchmark that cannot say anything; the text says why."""


@contextlib.contextmanager
def uninterrupted():
    """Delays Ctrl-C until after this, so that a process started here is known and will be ended."""
    late = []
    before = {number: signal.signal(number, lambda *_: late.append(True)) for number in ENDS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if late:
        raise KeyboardInterrupt


class Worker:
    """A bench_worker that does as it is told."""

    def __init__(self, argv, env):
        self.process = subprocess.Popen(
            argv, env=env, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.unread = b""

    def tell(self, *words):
        try:
            self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        except BrokenPipeError:
            raise Failed("bench_worker ended") from None

    def answer(self, expected=None, patience_s=PATIENCE_S):
        deadline = time.monotonic() + patience_s
        while b"\n" not in self.unread:
            left = max(0, deadline - time.monotonic())
            if not select.select([self.process.stdout], [], [], left)[0]:
                raise Failed(f"bench_worker said nothing for {patience_s:.0f} s")
            more = os.read(self.process.stdout.fileno(), 1 << 20)
            if not more:
                raise Failed("bench_worker ended")
            self.unread += more
        line, _, self.unread = self.unread.partition(b"\n")
        answer = line.decode()
        if expected not in (None, answer):
            raise Failed(f"bench_worker said '{answer}' instead of '{expected}'")
        return answer

    def ask(self, *words):
        self.tell(*words)
        return self.answer()

    def seconds(self, *words):
        return int(self.ask(*words)) / 1e9

    def page_faults(self):
        """So far, those that brought nothing in from a disk."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[7])

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Card:
    """A card and the daemon that shares it, in a directory of their own. `library`: the folder of its
    libcuda.so.1, None for the system's; `options`: variables of the environment, as for the software
    GPU."""

    def __init__(self, library=SOFT, **options):
        self.cleanup = contextlib.ExitStack()
        self.env = {k: v for k, v in os.environ.items() if k == KEPT or not k.startswith("TANDEM_")}
        self.env["TANDEM_GPU"] = "soft" if library == SOFT else "cuda"
        if library is not None:
            self.env["LD_LIBRARY_PATH"] = library
        self.env.update(options)

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.cleanup.close()
            raise
        return self

    def _start(self):
        with uninterrupted():
            made = tempfile.TemporaryDirectory(prefix="tandem-bench-", ignore_cleanup_errors=True)
            folder = Path(self.cleanup.enter_context(made))
            for name, variable in (("run", "TANDEM_RUNTIME_DIR"), ("soft", "TANDEM_SOFT_DIR")):
                (folder / name).mkdir(mode=0o700)
                self.env[variable] = str(folder / name)
            self.daemon = subprocess.Popen(
                [TANDEMD], env=self.env, start_new_session=True,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            self.cleanup.callback(self._end_daemon)
        deadline = time.monotonic() + PATIENCE_S
        while self.ask("status")["pid"] is None:
            if self.daemon.poll() is not None:
                raise Failed("the daemon ended")
            if time.monotonic() > deadline:
                raise Failed(f"the daemon did not answer for {PATIENCE_S} s")
            time.sleep(0.01)

    def __exit__(self, *_):
        self.cleanup.close()

    def _end_daemon(self):
        self.daemon.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.daemon.wait(timeout=END_PATIENCE_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.daemon.pid, signal.SIGKILL)  # the probe, if it was still looking
        self.daemon.wait()

    def bare(self, *options):
        return self._worker([WORKER, *options], self.env)

    def shared(self, *options, nice=0):
        argv = ["nice", "-n", str(nice), WORKER, *options]
        return self._worker(argv if nice else argv[3:], {**self.env, "LD_PRELOAD": SHIM})

    def run(self, *options, **variables):
        """A worker under `tandem run` with these options."""
        return self._worker([TANDEM, "run", *options, "--", WORKER], {**self.env, **variables})

    def _worker(self, argv, env):
        with uninterrupted():
            worker = Worker(argv, env)
            self.cleanup.callback(worker.close)
        worker.answer("ready")
        return worker

    def ask(self, what):
        argv = [TANDEM, what, "--json"]
        answer = subprocess.run(argv, env=self.env, capture_output=True, timeout=PATIENCE_S)
        if answer.returncode != 0:
            return {"pid": None}
        return json.loads(answer.stdout)


class PageFaults:
    """Of these workers, from now on, for each time that the card changes hands."""

    def __init__(self, card, workers):
        self.card, self.workers = card, workers
        self.handovers, self.faults = self._so_far()

    def _so_far(self):
        handovers = self.card.ask("status")["gpus"][0]["handovers"]
        return handovers, sum(worker.page_faults() for worker in self.workers)

    def each(self):
        """None if it did not."""
        handovers, faults = self._so_far()
        if handovers == self.handovers:
            return None
        return round((faults - self.faults) / (handovers - self.handovers), 1)


def on_real_card():
    return os.environ.get("TANDEM_GPU") == "cuda"


def software_only(why):
    """For what would measure something else on a card than it says."""
    if on_real_card():
        raise Failed(f"not with TANDEM_GPU=cuda: {why}")


def small_card(bus="8GB/s", **options):
    """The software card of 56 MiB; with TANDEM_GPU=cuda the first real one."""
    if on_real_card():
        return Card(library=None, **options)
    size = {"TANDEM_SOFT_VRAM": str(VRAM), "TANDEM_SOFT_CONTEXT": str(CONTEXT)}
    return Card(**{**size, "TANDEM_SOFT_PCIE": bus, **options})


def held_share(share):
    """Bytes of whole chunks of 2 MiB, as near to `share` of the software card's budget as these come."""
    return round(BUDGET * share / CHUNK) * CHUNK


def pass_seconds(card, held, count):
    """The time that a program with the card to itself takes to write all of `held` bytes; the median
    of `count` passes, after one that warms up."""
    worker = card.shared()
    worker.ask("memory", held)
    worker.ask("rewrite", 1)
    seconds = statistics.median(worker.seconds("rewrite", 1) for _ in range(count))
    worker.close()
    return seconds


def bus_limits(card, copies):
    """Bytes a second out and in, by plain copies of programs without Tandem, both directions busy."""
    down, up = card.bare(), card.bare()
    for worker in (down, up):
        worker.ask("memory", COPY)
        worker.ask("copies", "up", COPY, 1)
    rates = []
    # Each is measured while the other goes on for longer.
    for measured, direction, other, opposite in ((down, "down", up, "up"), (up, "up", down, "down")):
        other.tell("copies", opposite, COPY, copies * 2)
        seconds = measured.seconds("copies", direction, COPY, copies)
        other.answer()
        rates.append(copies * COPY / seconds)
    for worker in (down, up):
        worker.close()
    return rates


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def percentile(values, share):
    """The value that `share` of them (0 to 1) do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def spread(values):
    """How far the quartiles lie apart, as a share of the median."""
    low, middle, high = (percentile(values, share) for share in (0.25, 0.5, 0.75))
    return round((high - low) / middle, 4) if middle else None


def show(row):
    width = max(map(len, row)) + 2
    for name, value in row.items():
        print(f"{name:{width}}{value}")
    print()


def run(name, text, measure, rounds=None, options=()):
    """Parses the command line and shows what `measure(args)` yields. `options`: more of them, as
    (arguments, keywords) of add_argument."""
    parser = argparse.ArgumentParser(
        prog=f"./dev bench {name}", description=text, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="JSON, an object a line, and nothing else")
    parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it works")
    if rounds is not None:
        parser.add_argument("--rounds", type=int, default=rounds, help="of each kind (default %(default)s)")
    for arguments, keywords in options:
        parser.add_argument(*arguments, **keywords)
    args = parser.parse_args()
    if not Path(WORKER).exists():
        sys.exit(f"{name}: nothing is built in {BUILD}; ./dev bench {name} builds it")
    for number in ENDS:
        signal.signal(number, signal.default_int_handler)
    try:
        for row in measure(args):
            if args.json:
                print(json.dumps(row), flush=True)
            else:
                show(row)
    except (Failed, subprocess.TimeoutExpired) as failure:
        sys.exit(f"{name}: {failure}")
    except KeyboardInterrupt:
        sys.exit(130)
