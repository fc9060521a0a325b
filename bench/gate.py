#!/usr/bin/env python3
"""What the open gate adds to a launch.

A launch through libtandem.so against the same call without it, on a driver that does nothing, so
that nanoseconds do not drown in the launch itself. Two processes that stay, asked in turns; each
round is a pair, too short for most to be interrupted, and the figures are medians. The instructions
are counted by callgrind, as the difference between a run with many launches and one with few; null
where valgrind is missing.
"""

import re
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

from _card import NOOP, SHIM, WORKER, Card, Failed, run, say, spread

LAUNCHES = 20_000  # in each round
FEW, MANY = 1_000, 11_000  # under callgrind


def counted(card, preload, launches):
    """Instructions of the thread that launches so often, from its start to its end."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**card.env, **({"LD_PRELOAD": SHIM} if preload else {})}
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", "--separate-threads=yes",
             f"--callgrind-out-file={folder}/out", WORKER, "--no-kernels"],
            env=env, input=f"launches 1\nlaunches {launches}\n", capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode != 0:
            raise Failed(f"callgrind: {done.stderr[-500:]}")
        # The others are those of the shim's own threads.
        mine = Path(folder, "out-01") if Path(folder, "out-01").exists() else Path(folder, "out")
        return int(re.search(r"^(?:summary|totals): (\d+)", mine.read_text(), re.M)[1])


def added_instructions(card, quick):
    if quick:
        return None, "not counted in a quick run"
    if shutil.which("valgrind") is None:
        return None, "valgrind is not installed"
    per_launch = [
        (counted(card, preload, MANY) - counted(card, preload, FEW)) / (MANY - FEW)
        for preload in (False, True)
    ]
    return round(per_launch[1] - per_launch[0], 1), None


def measure(args):
    rounds = 20 if args.quick else max(1, args.rounds)
    with Card(library=NOOP) as card:
        bare, shared = card.bare("--no-kernels"), card.shared("--no-kernels")
        pairs = []
        say(f"gate: {rounds} rounds")
        for _ in range(rounds + 1):  # the first warms up
            pairs.append([w.seconds("launches", LAUNCHES) * 1e9 / LAUNCHES for w in (bare, shared)])
        del pairs[0]
        if not card.ask("ps")["sessions"]:
            raise Failed("the launches did not go through the gate: no session is there")
        say("gate: instructions")
        instructions, reason = added_instructions(card, args.quick)
    added = [tandem - alone for alone, tandem in pairs]
    row = {
        "bare_ns": round(statistics.median(pair[0] for pair in pairs), 2),
        "tandem_ns": round(statistics.median(pair[1] for pair in pairs), 2),
        "added_ns": round(statistics.median(added), 2),
        "added_instructions": instructions,
        "rounds": rounds,
        "spread": spread(added),
        "launches": LAUNCHES,
    }
    yield row if reason is None else {**row, "why_no_instructions": reason}


if __name__ == "__main__":
    run("gate", __doc__, measure, rounds=501)
