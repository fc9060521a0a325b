#!/usr/bin/env python3
"""What people wait who share a card, each with cells of 0.3 s every three seconds and 60 % of the budget,
at 1:10: a cell is 30 ms of kernels on average, a pause 300 ms, both exponential, and moving all of the
budget takes the bus 5 ms. Real programs on the software
GPU.

A wait runs from when a cell is ready to when its first kernel begins, by the device's timer. Beside it
stand the same users with the same draws in virtual time (`model_…`), by the daemon's own scheduler
with a bus and messages as slow as was measured (`switch_ms`), and the closed form of first come, first
served, W(S + T) + T: W the wait where each cell takes S and a switch T longer, T the mean switch time
of a cell. `nvshare` is that program's rule: turns of 30 s and pauses of 5 s, at the same scale.
"""

import math
import random
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from _card import (
    BUDGET, BUILD, CHUNK, PATIENCE_S, Failed, held_share, percentile, run, say, small_card, software_only,
)  # fmt: skip

USERS = str(BUILD / "bin" / "bench_users")
SCALE = 10
CELL_S, THINK_S, MOVE_S = 0.3 / SCALE, 3 / SCALE, 0.05 / SCALE
STAMPS = 4 << 20  # what a worker holds besides, for the times
HELD = held_share(0.6)
COUNTS = (2, 4, 8)
POLICIES = ("fcfs", "interactive", "round-robin", "fair", "nvshare")
WARM_UP = 0.1  # of the cells of each
LATENCY_US = 100  # of a message, with a thread to wake


def calibrate(card, folder):
    """Seconds that a cell without kernels takes, and one kernel of a cell."""
    worker = card.shared()
    worker.ask("memory", HELD - STAMPS)
    none = folder / "none"
    none.write_text("0 0\n" * 100)
    worker.ask("cells", none)
    begin = time.monotonic()
    worker.ask("cells", none)
    fixed = (time.monotonic() - begin) / 100
    worker.ask("unit", 50)
    unit = statistics.median(worker.seconds("unit", 50) for _ in range(5)) / 50
    worker.close()
    return fixed, unit


def draw(seed, count, fixed, unit):
    """For each cell: seconds of thinking before it, and its kernels."""
    dice = random.Random(seed)
    cells = []
    for _ in range(count):
        think = dice.expovariate(1 / THINK_S)
        work = dice.expovariate(1 / CELL_S)
        cells.append((think, max(0, round((work - fixed) / unit))))
    return cells


def waits_of(line):
    times = [int(word) for word in line.split()]
    return [(begin - ready) / 1e9 for ready, begin in zip(times[::2], times[1::2])]


def settled(waits):
    return waits[int(len(waits) * WARM_UP):]


def closed_form(users, work_s, switch_s):
    """Mean wait of the machine-repair model (Kleinrock, Queueing Systems I, section 3.8)."""
    service = work_s + switch_s
    ratio = THINK_S / service
    terms = [ratio**k / math.factorial(k) for k in range(users + 1)]
    busy = sum(terms[:-1]) / sum(terms)
    return users * service / busy - THINK_S - service + switch_s


def simulate(policy, files, bus):
    output = subprocess.run(
        [USERS, "--policy", policy, "--time-scale", str(SCALE), "--card", str(BUDGET), "--chunk", str(CHUNK),
         "--memory", str(HELD), "--bus", str(bus), "--latency-us", str(LATENCY_US), *files],
        capture_output=True, text=True, check=True, timeout=PATIENCE_S,
    ).stdout  # fmt: skip
    waits = {}
    for line in output.splitlines():
        user, wait = line.split()
        waits.setdefault(user, []).append(int(wait) / 1e9)
    return [wait for each in waits.values() for wait in settled(each)]


def measured(policy, users, bursts, seed):
    options = {"TANDEM_POLICY": policy, "TANDEM_TIME_SCALE": str(SCALE)}
    bus = f"{BUDGET / MOVE_S:.0f}B/s"
    with small_card(bus, **options) as card, tempfile.TemporaryDirectory(prefix="tandem-bench-") as made:
        folder = Path(made)
        fixed, unit = calibrate(card, folder)
        count = math.ceil(bursts / users / (1 - WARM_UP))
        cells = [draw(seed * 1000 + user, count, fixed, unit) for user in range(users)]
        for user, each in enumerate(cells):
            lines = [f"{think * 1e9:.0f} {kernels}" for think, kernels in each]
            (folder / f"cells{user}").write_text("\n".join(lines) + "\n")
            works = [f"{think * 1e9:.0f} {(fixed + kernels * unit) * 1e9:.0f}" for think, kernels in each]
            (folder / f"works{user}").write_text("\n".join(works) + "\n")
        workers = [card.shared() for _ in range(users)]
        for worker in workers:
            worker.ask("memory", HELD - STAMPS)
        before = card.ask("status")["gpus"][0]["handovers"]
        for user, worker in enumerate(workers):
            worker.tell("cells", folder / f"cells{user}")
        answers = [worker.answer(patience_s=3600) for worker in workers]
        waits = [wait for answer in answers for wait in settled(waits_of(answer))]
        if len(waits) < bursts:
            raise Failed(f"{len(waits)} cells were done, not {bursts}")
        status = card.ask("status")["gpus"][0]
        moves = [h for h in card.ask("handovers")["handovers"] if h["in_bytes"] > 0]
        if not moves:
            raise Failed("no hand-over moved anything")
        switch_s = statistics.mean(h["took_s"] - h["release_s"] for h in moves)
        lacked = statistics.mean(h["lacked_bytes"] for h in moves)
        per_cell = (status["handovers"] - before) / (count * users)
        work_s = statistics.mean(fixed + kernels * unit for each in cells for _, kernels in each)
        # A switch is two messages, one after the other, and the copies.
        model_bus = lacked / max(switch_s - 2 * LATENCY_US / 1e6, 1e-5)
        model = simulate(policy, [str(folder / f"works{user}") for user in range(users)], model_bus)
        return {
            "users": users,
            "policy": policy,
            "bursts": len(waits),
            "mean_wait_s": round(statistics.mean(waits), 5),
            "p99_wait_s": round(percentile(waits, 0.99), 5),
            "model_mean_s": round(statistics.mean(model), 5),
            "model_p99_s": round(percentile(model, 0.99), 5),
            "closed_form_mean_s": round(closed_form(users, work_s, switch_s * per_cell), 5),
            "work_s": round(work_s, 5),
            "switch_ms": round(switch_s * 1e3, 4),
            "switches_per_burst": round(per_cell, 4),
            "seed": seed,
            "scale": f"1:{SCALE}",
        }


def measure(args):
    software_only("the bus has to be of a speed")
    policies = POLICIES if args.policy is None else args.policy.split(",")
    for policy in policies[:1] if args.quick else policies:
        for users in COUNTS[:1] if args.quick else COUNTS:
            bursts = 30 if args.quick else args.bursts
            say(f"interactive: {users} users, {policy}, {bursts} cells")
            yield measured(policy, users, bursts, args.seed)


if __name__ == "__main__":
    run("interactive", __doc__, measure, options=(
        (("--policy",), {"help": f"comma-separated: only these of {', '.join(POLICIES)}"}),
        (("--bursts",), {"type": int, "default": 4000, "help": "cells, of all users together"}),
        (("--seed",), {"type": int, "default": 1, "help": "of the draws"}),
    ))  # fmt: skip
