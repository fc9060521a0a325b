#!/usr/bin/env python3
"""What it costs to see: 40 sessions on 3 software GPUs, some at work and handing over, most idle.

A software GPU computes on the processors that daemon and server need, which a card does not: these
programs have the lowest priority (nice 19).

daemon_cpu_share    of a core: what the daemon uses with event log and accounts, less what it uses
                    without them at the same load, in turns; this is the cost of publishing
recorder_cpu_share  of a core: the thread that writes both, by the kernel's own count
top_cpu_share       of a core: `tandem top` on a terminal of 80x24, one refresh a second
scrape_ms           the time of a GET of /metrics from `tandem serve`: median and longest
events_per_second   lines of the event log
db_bytes_per_day    the accounts' pages for these sessions around the clock: bytes for each row, of
                    which there is one for each session and hour
"""

import contextlib
import fcntl
import json
import os
import pty
import select
import sqlite3
import statistics
import struct
import subprocess
import termios
import threading
import time
import urllib.request
from pathlib import Path

from _card import MIB, TANDEM, Card, Failed, percentile, run, say, software_only, uninterrupted

AT_WORK = 4  # sessions of each GPU, which do not fit on it together
MEMORY_AT_WORK, MEMORY_IDLE = 14 * MIB, 2 * MIB
PAUSE_NS = 100_000_000  # between two passes over their memory
NO_HISTORY = {"TANDEM_EVENTS": "none", "TANDEM_ACCOUNTS": "none"}
SCRAPES = 30


def seconds_used(pid, thread=None):
    """Of a processor, by a process's threads or one of them, to the nanosecond."""
    tasks = Path(f"/proc/{pid}/task")
    stats = [tasks / str(thread)] if thread else tasks.iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in stats) / 1e9


def thread_called(pid, name):
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == name:
            return int(task.name)
    raise Failed(f"the daemon has no thread called {name}")


@contextlib.contextmanager
def loaded(args, **options):
    """A daemon with all sessions there, and those at work that are to be."""
    devices = ",".join(f"gpu{index}" for index in range(args.gpus))
    sizes = {"TANDEM_SOFT_DEVICES": devices, "TANDEM_SOFT_VRAM": "48M", "TANDEM_SOFT_CONTEXT": "512K",
             "TANDEM_SOFT_PCIE": "8GB/s"}  # fmt: skip
    with Card(**sizes, **options) as card:
        workers = []
        for number in range(args.sessions):
            worker = card.shared("--device", str(number % args.gpus), nice=19)
            worker.ask("memory", MEMORY_AT_WORK if number < AT_WORK * args.gpus else MEMORY_IDLE)
            workers.append(worker)
        for worker in workers[: AT_WORK * args.gpus]:
            worker.tell("job", 1 << 40, 1, PAUSE_NS)
        sessions = len(card.ask("ps")["sessions"])
        if sessions != args.sessions:
            raise Failed(f"there are {sessions} sessions")
        yield card


def daemon_share(card, seconds, thread=None):
    """Of a core, over this time in seconds; with a thread's name, that one's."""
    which = thread_called(card.daemon.pid, thread) if thread else None
    begin, used = time.monotonic(), seconds_used(card.daemon.pid)
    used_by_thread = seconds_used(card.daemon.pid, which) if which else 0
    time.sleep(seconds)
    passed = time.monotonic() - begin
    share = (seconds_used(card.daemon.pid) - used) / passed
    own = (seconds_used(card.daemon.pid, which) - used_by_thread) / passed if which else 0
    return share, own


def top_share(card, seconds):
    """Of a core, by `tandem top` once it shows its picture."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    with uninterrupted():
        top = subprocess.Popen(
            [TANDEM, "top"], env={**card.env, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"},
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        )  # fmt: skip
        card.cleanup.callback(top.kill)
    os.close(slave)
    shown = bytearray()

    def drain():
        with contextlib.suppress(OSError):
            while piece := os.read(master, 65536):
                shown.extend(piece)

    threading.Thread(target=drain, daemon=True).start()
    time.sleep(3)
    begin, used, before = time.monotonic(), seconds_used(top.pid), len(shown)
    time.sleep(seconds)
    share = (seconds_used(top.pid) - used) / (time.monotonic() - begin)
    if top.poll() is not None or len(shown) == before:
        raise Failed("`tandem top` showed nothing")
    top.kill()
    top.wait()
    return share


def scrapes(card, count):
    """Milliseconds of each GET of /metrics."""
    with uninterrupted():
        serve = subprocess.Popen(
            [TANDEM, "serve", "--json", "--listen", "127.0.0.1:0"], env=card.env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        card.cleanup.callback(serve.kill)
    ready, _, _ = select.select([serve.stdout], [], [], 10)
    line = serve.stdout.readline() if ready else ""
    try:
        port = json.loads(line)["port"]
    except ValueError:
        raise Failed(f"`tandem serve` said '{line.strip()}'") from None
    times = []
    for _ in range(count):
        begin = time.monotonic()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        times.append((time.monotonic() - begin) * 1e3)
        if not text.rstrip().endswith("# EOF"):
            raise Failed("/metrics ends in the middle")
        time.sleep(0.5)
    serve.terminate()
    serve.wait()
    return times


def lines_of(card):
    path = Path(card.ask("status")["events_file"])
    return sum(file.read_bytes().count(b"\n") for file in path.parent.glob(path.name + "*"))


def bytes_of_rows(card):
    """Pages of the accounts for a row, without those of an empty database."""
    path = card.ask("status")["accounts_file"]
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as accounts:
        rows = accounts.execute("SELECT count(*) FROM usage").fetchone()[0]
        size = accounts.execute("PRAGMA page_count").fetchone()[0]
        page = accounts.execute("PRAGMA page_size").fetchone()[0]
        tables = accounts.execute("SELECT count(*) FROM sqlite_master WHERE rootpage > 0").fetchone()[0]
    if rows == 0:
        raise Failed("the accounts have no rows")
    return max(size - 1 - tables, 1) * page / rows


def measure(args):
    software_only("it needs three small cards")
    rounds, seconds = (1, 7) if args.quick else (args.rounds, args.seconds)
    with_history, without, recorder, tops, times, rates = [], [], [], [], [], []
    row_bytes = None
    for _ in range(rounds):
        say("with event log and accounts")
        with loaded(args) as card:
            time.sleep(2)
            lines, begin = lines_of(card), time.monotonic()
            share, own = daemon_share(card, seconds, "recorder")
            rates.append((lines_of(card) - lines) / (time.monotonic() - begin))
            with_history.append(share)
            recorder.append(own)
            say("top")
            tops.append(top_share(card, seconds / 2))
            say("metrics")
            times += scrapes(card, 4 if args.quick else SCRAPES)
            row_bytes = bytes_of_rows(card)
        say("without them")
        with loaded(args, **NO_HISTORY) as card:
            time.sleep(2)
            without.append(daemon_share(card, seconds)[0])
    median = statistics.median
    yield {
        "sessions": args.sessions,
        "gpus": args.gpus,
        "daemon_cpu_share": round(median(with_history) - median(without), 5),
        "daemon_cpu_share_with": round(median(with_history), 5),
        "daemon_cpu_share_without": round(median(without), 5),
        "recorder_cpu_share": round(median(recorder), 5),
        "top_cpu_share": round(median(tops), 5),
        "scrape_ms": round(median(times), 2),
        "scrape_max_ms": round(percentile(times, 1), 2),
        "events_per_second": round(median(rates), 1),
        "db_bytes_per_day": round(row_bytes * args.sessions * 24),
        "rounds": rounds,
        "seconds": seconds,
    }


if __name__ == "__main__":
    run("observe", __doc__, measure, rounds=3, options=[
        (["--sessions"], {"type": int, "default": 40, "help": "default %(default)s"}),
        (["--gpus"], {"type": int, "default": 3, "help": "default %(default)s"}),
        (["--seconds"], {"type": int, "default": 20, "help": "of each measurement (default %(default)s)"}),
    ])  # fmt: skip
